package protocol_test

import (
	"strings"
	"testing"

	"abide/protocol"
)

// createBody is a promise.create as the TypeScript SDK sends it, with a payload of 200 bytes.
var createBody = []byte(`{"kind":"promise.create","head":{"corrId":"0d2a3c1e-8f6b-4a57-9c1d-2e3f4a5b6c7d","version":"2026-04-01"},` +
	`"data":{"id":"transfer.42.0","timeoutAt":1798761600000,"param":{"headers":{},"data":"` + strings.Repeat("eyJm", 50) + `"},` +
	`"tags":{"resonate:scope":"global","resonate:target":"poll://any@default","resonate:branch":"transfer.42.0",` +
	`"resonate:parent":"transfer.42","resonate:origin":"transfer.42"}}}`)

func BenchmarkDecodeCreate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		env, err := protocol.DecodeEnvelope(createBody)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := protocol.DecodeRequest(env.Kind, env.Data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodePromise(b *testing.B) {
	env, err := protocol.DecodeEnvelope(createBody)
	if err != nil {
		b.Fatal(err)
	}
	req, err := protocol.DecodeRequest(env.Kind, env.Data)
	if err != nil {
		b.Fatal(err)
	}
	create := req.(*protocol.PromiseCreate)
	reply := protocol.OK(protocol.PromiseBody{Promise: protocol.Promise{
		ID: create.ID, State: protocol.Pending, Param: create.Param, Tags: create.Tags,
		TimeoutAt: create.TimeoutAt, CreatedAt: 1798000000000,
	}})
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = protocol.AppendResponse(dst[:0], env.Kind, env.CorrID, reply)
	}
	b.SetBytes(int64(len(dst)))
}
