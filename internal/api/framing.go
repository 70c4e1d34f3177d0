package api

import "net/http"

// lastOfConnection tells whether a connection must end with the answer to r, since somebody in front of the server may see
// the end of the request elsewhere: what follows it would then be another's request, made up by whoever sent this one.
//
// With a body in chunks there may have been a Content-Length as well, which net/http drops without a word; RFC 9112, 6.1,
// has a server close the connection of such a request. HTTP/1.0 knows no chunks, and net/http takes none, whatever the
// header says.
func lastOfConnection(r *http.Request) bool {
	return len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1)
}
