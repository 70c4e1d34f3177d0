package main

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"abide/kv"
)

// unready is why a server is not ready, for its log; Public is what everybody may know who asks it without a token.
type unready struct {
	error
	public string
}

// Public implements api.Reticent.
func (u unready) Public() string { return u.public }

// Unwrap is the whole cause.
func (u unready) Unwrap() error { return u.error }

// withoutAddresses is an error of a database whose text for the public does not say where the database is, what it is called and as
// whom it is spoken to. Drivers and databases like to say all of it. Other errors stay as they are.
func withoutAddresses(err error) error {
	var of *kv.Error
	if err == nil || !errors.As(err, &of) || of.Err == nil || of.Store == engineSQLite {
		return err
	}
	bare := *of
	bare.Err = nil
	text := bare.Error()
	if cause := causeOfSilence(of.Err); cause != "" {
		text += ": " + cause
	}
	return unready{err, "the store cannot be used: " + text + "; the server's log says more"}
}

// causeOfSilence says in general words why a database is not heard of; empty if it is for other reasons.
func causeOfSilence(err error) string {
	var lookup *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &lookup):
		return "its name cannot be looked up"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refuses connections"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "it does not answer in time"
	}
	return ""
}
