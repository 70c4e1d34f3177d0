package auth

import "abide/protocol"

// Reason is why a token or a request was refused: one of the constants below, for logs and counters. Clients are not
// told.
type Reason string

// Reasons of a refusal with protocol.StatusUnauthorized: the token is no good.
const (
	ReasonMissing     Reason = "no token"
	ReasonAmbiguous   Reason = "two tokens"
	ReasonOversized   Reason = "token too long"
	ReasonMalformed   Reason = "malformed token"
	ReasonAlgorithm   Reason = "algorithm not accepted"
	ReasonUnknownKey  Reason = "unknown key"
	ReasonSignature   Reason = "wrong signature"
	ReasonClaims      Reason = "claims missing or malformed"
	ReasonExpired     Reason = "expired"
	ReasonNotYetValid Reason = "not valid yet"
	ReasonAudience    Reason = "wrong audience"
	ReasonIssuer      Reason = "wrong issuer"
)

// Reasons of a refusal with protocol.StatusForbidden: the token is good, and does not allow this.
const (
	ReasonWorkspace Reason = "workspace not allowed"
	ReasonNoPrefix  Reason = "token without prefix"
	ReasonKind      Reason = "kind not allowed"
	ReasonID        Reason = "id outside the prefix"
	ReasonGroup     Reason = "worker group not allowed"
)

// Refusal is why a token or a request was refused.
type Refusal struct {
	// Status is protocol.StatusUnauthorized or protocol.StatusForbidden.
	Status int
	Reason Reason
}

// Error is what the log says. Clients get Message.
func (r *Refusal) Error() string { return r.Message() + ": " + string(r.Reason) }

// Message is what the client is told: one constant for each status.
func (r *Refusal) Message() string {
	if r.Status == protocol.StatusUnauthorized {
		return "Unauthorized"
	}
	return "Forbidden"
}

func unauthorized(reason Reason) *Refusal {
	return &Refusal{Status: protocol.StatusUnauthorized, Reason: reason}
}

func forbidden(reason Reason) *Refusal {
	return &Refusal{Status: protocol.StatusForbidden, Reason: reason}
}
