package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"abide/internal/push"
)

func rules(t *testing.T, allow, deny string) Rules {
	t.Helper()
	r, err := ParseRules(strings.Fields(allow), strings.Fields(deny))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		allow, deny string
		host, ip    string
		ok          bool
	}{
		{"", "", "example.com", "93.184.216.34", true},
		{"", "", "example.com", "2606:2800:220:1::1", true},
		// What is not public, in all its spellings.
		{"", "", "h", "127.0.0.1", false},
		{"", "", "h", "127.255.0.9", false},
		{"", "", "h", "::1", false},
		{"", "", "h", "0.0.0.0", false},
		{"", "", "h", "::", false},
		{"", "", "h", "10.1.2.3", false},
		{"", "", "h", "172.16.0.1", false},
		{"", "", "h", "172.31.255.255", false},
		{"", "", "h", "172.32.0.1", true},
		{"", "", "h", "192.168.1.1", false},
		{"", "", "h", "169.254.169.254", false},
		{"", "", "h", "100.64.0.1", false},
		{"", "", "h", "100.128.0.1", true},
		{"", "", "h", "224.0.0.1", false},
		{"", "", "h", "255.255.255.255", false},
		{"", "", "h", "198.18.0.1", false},
		{"", "", "h", "192.0.2.1", false},
		{"", "", "h", "fe80::1", false},
		{"", "", "h", "fe80::1%eth0", false},
		{"", "", "h", "fc00::1", false},
		{"", "", "h", "fd12::1", false},
		{"", "", "h", "ff02::1", false},
		{"", "", "h", "::ffff:127.0.0.1", false},
		{"", "", "h", "::ffff:93.184.216.34", true},
		{"", "", "h", "::127.0.0.1", false},
		{"", "", "h", "64:ff9b::7f00:1", false},
		{"", "", "h", "64:ff9b::a9fe:a9fe", false},
		{"", "", "h", "64:ff9b::5db8:d822", true},
		{"", "", "h", "64:ff9b:1::1", false},
		{"", "", "h", "2002:7f00:1::", false},
		{"", "", "h", "2001::1", false},
		{"", "", "h", "fd00:ec2::254", false},
		{"", "", "h", "168.63.129.16", false}, // the host of a machine at Azure
		{"", "", "h", "::ffff:0:127.0.0.1", false},
		{"", "", "h", "200::1", false}, // not of the Internet's addresses
		{"", "", "h", "4000::1", false},
		{"", "bücher.example", "xn--bcher-kva.example", "93.184.216.34", false},
		// Lists.
		{"10.0.0.0/8", "", "h", "10.1.2.3", true},
		{"10.0.0.0/8", "", "h", "93.184.216.34", false},
		{"10.0.0.0/8 *", "", "h", "93.184.216.34", true},
		{"10.0.0.0/8 *", "", "h", "192.168.0.1", false},
		{"10.1.2.3", "", "h", "10.1.2.3", true},
		{"[::1]", "", "h", "::1", true},
		{"10.0.0.0/8", "", "h", "::ffff:10.1.2.3", true},
		{"good.example", "", "good.example", "93.184.216.34", true},
		{"good.example", "", "GOOD.example.", "10.0.0.1", true},
		{"good.example", "", "bad.example", "93.184.216.34", false},
		{"good.example", "", "x.good.example", "93.184.216.34", false},
		{"good.example", "", "good.example", "169.254.169.254", false},
		{"good.example 169.254.0.0/16", "", "good.example", "169.254.169.254", true},
		{"*.good.example", "", "a.b.good.example", "10.0.0.1", true},
		{"*.good.example", "", "good.example", "10.0.0.1", false},
		{"*.good.example", "", "evilgood.example", "93.184.216.34", false},
		{"", "bad.example", "bad.example", "93.184.216.34", false},
		{"", "*.bad.example", "x.bad.example", "93.184.216.34", false},
		{"", "93.184.0.0/16", "example.com", "93.184.216.34", false},
		{"*", "93.184.216.34", "example.com", "93.184.216.34", false},
		{"example.com", "93.184.216.34", "example.com", "93.184.216.34", false},
		{"10.0.0.0/8", "10.9.0.0/16", "h", "10.9.1.1", false},
		{"10.0.0.0/8", "*", "h", "10.9.1.1", true},
		{"", "*", "h", "93.184.216.34", false},
		{"* 0.0.0.0/0 ::/0", "", "h", "127.0.0.1", true},
		{"* 0.0.0.0/0 ::/0", "", "h", "::1", true},
	} {
		err := rules(t, c.allow, c.deny).check(c.host, netip.MustParseAddr(c.ip))
		if (err == nil) != c.ok {
			t.Errorf("allow %q, deny %q: %s at %s: %v", c.allow, c.deny, c.host, c.ip, err)
		}
		if err != nil && (!errors.Is(err, push.ErrRefused) || !strings.Contains(err.Error(), "transports.http_push.")) {
			t.Errorf("%v is no refusal that says where the rule is", err)
		}
	}
}

func TestBadRules(t *testing.T) {
	for _, text := range []string{"", "http://h", "h:80", "10.0.0.0/99", "*.", "*.*.x", "a*b", "x@y", "10.0.0.0/8/8", "*.10.0.0.1/8", strings.Repeat("x", 300)} {
		if _, err := ParseRules([]string{text}, nil); err == nil || !strings.Contains(err.Error(), "is no rule") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	if _, err := ParseRules(nil, make([]string, MaxRules+1)); err == nil {
		t.Error("too many are accepted")
	}
}

// nameServer answers every question about IPv4 addresses with the next of a list, and the last for ever.
func nameServer(t *testing.T, answers ...string) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	asked := new(atomic.Int64)
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			question := append([]byte(nil), buf[:n]...)
			end := 12
			for end < n && question[end] != 0 {
				end += int(question[end]) + 1
			}
			end += 5
			reply := append([]byte(nil), question[:end]...)
			reply[2], reply[3] = 0x81, 0x80
			copy(reply[6:12], []byte{0, 0, 0, 0, 0, 0})
			if binary.BigEndian.Uint16(question[end-4:]) == 1 {
				i := min(int(asked.Add(1)), len(answers)) - 1
				ip := netip.MustParseAddr(answers[i]).As4()
				reply[7] = 1
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply, ip[:]...)
			}
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}, asked
}

// counted is a server that counts what reaches it.
func counted(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	n := new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		if h != nil {
			h(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s, n
}

func options() Options {
	return Options{Version: "1.2.3", Concurrency: 4, ConnectTimeout: time.Minute, RequestTimeout: time.Minute, Mode: ModeNone, Now: time.Now}
}

func newTransport(t *testing.T, o Options) *Transport {
	t.Helper()
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr
}

// A name that shows one address when it is looked up first and another one when it is dialled gains nothing: what is
// dialled is what is judged.
func TestRebinding(t *testing.T) {
	for timeout := 300 * time.Millisecond; ; timeout *= 2 { // a busy machine may need more to look the name up
		if err := rebind(t, timeout); err == nil {
			return
		} else if timeout > 10*time.Second {
			t.Fatal(err)
		}
	}
}

func rebind(t *testing.T, connectTimeout time.Duration) error {
	s, reached := counted(t, nil)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	o := options()
	o.ConnectTimeout = connectTimeout
	o.Resolver, _ = nameServer(t, "203.0.113.7", "127.0.0.1")
	o.Rules = rules(t, "203.0.113.0/24", "")
	tr := newTransport(t, o)
	message := push.Message{Address: "http://rebinding.example:" + itoa(port) + "/", Body: []byte("{}")}
	for range 3 {
		if err := tr.Send(t.Context(), message); err == nil {
			t.Error("sent")
		}
	}
	err := tr.Send(t.Context(), message)
	if reached.Load() != 0 {
		t.Errorf("%d requests reached the loopback interface", reached.Load())
	}
	if !errors.Is(err, push.ErrRefused) {
		return fmt.Errorf("the name that has become one of this machine: %v", err)
	}
	o.Rules, o.ConnectTimeout = rules(t, "rebinding.example", ""), time.Minute
	if err := newTransport(t, o).Send(t.Context(), message); err != nil || reached.Load() != 1 {
		t.Errorf("a name that is allowed: %v", err)
	}
	return nil
}

// throughProxy is a transport that sends all through the proxy at a URL, has no name server, and rules that deny some names.
func throughProxy(t *testing.T, proxy string) *Transport {
	t.Helper()
	at, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Proxy = func(*http.Request) (*url.URL, error) { return at, nil }
	o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }}
	o.Rules = rules(t, "", "denied.example bücher.example 1.2.3.4")
	return newTransport(t, o)
}

// A host has many spellings, of which a proxy knows more than name servers do: all are judged as the one that they stand
// for, with nobody asked, and the proxy sees that one.
func TestSpellingsThroughAProxy(t *testing.T) {
	var seen atomic.Value
	proxy, reached := counted(t, func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.URL.Host) })
	tr := throughProxy(t, proxy.URL)
	for _, host := range []string{
		"2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "0", "017700000001", "0x7F000001", "127%2e0.0.1", "%31%32%37.1", "１２７.1", "127。0。0。1",
		"2852039166", "0xa9fea9fe", "169.254.43518", "[::ffff:0:7f00:1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "16909060", "1.2.772",
		"DENIED.example", "denied.example.", "denied.example..", "den%69ed.example", "ｄenied.example", "denied。example", "ⓓenied.example", "den\u00adied.example",
		"bücher.example", "BÜCHER.example", "b%C3%BCcher.example", "xn--bcher-kva.example", "user@denied.example", "a@b@denied.example",
	} {
		if err := tr.Send(t.Context(), push.Message{Address: "http://" + host + "/", Body: []byte("{}")}); !errors.Is(err, push.ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if reached.Load() != 0 {
		t.Fatalf("%d requests reached the proxy", reached.Load())
	}
	for host, want := range map[string]string{
		"1572395042": "93.184.216.34", "0x5d.184.0330.34": "93.184.216.34", "pub%6cic.example": "public.example", "ÖFFENTLICH.example": "xn--ffentlich-z7a.example", "a_b.example": "a_b.example",
	} {
		if err := tr.Send(t.Context(), push.Message{Address: "http://" + host + "/", Body: []byte("{}")}); err != nil || seen.Load() != want {
			t.Errorf("%s: %v, the proxy was asked for %v", host, err, seen.Load())
		}
	}
}

// A redirect is read as an address is: where it leads has one spelling, too, before the rules judge it.
func TestSpellingsInRedirectsThroughAProxy(t *testing.T) {
	var to, seen atomic.Value
	proxy, reached := counted(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.URL.Host)
		if r.URL.Host == "first.example" {
			w.Header().Set("Location", to.Load().(string))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
	tr := throughProxy(t, proxy.URL)
	send := func(location string) error {
		to.Store(location)
		return tr.Send(t.Context(), push.Message{Address: "http://first.example/", Body: []byte("{}")})
	}
	for _, location := range []string{
		"http://2130706433/", "//0x7f.1/", "http://127.1", "http://0177.0.0.1/", "http://127.0.0.1./", "http://2852039166/", "http://16909060/", "http://１２７.1/",
		"http://[::ffff:7f00:1]/", "http://DENIED.example/", "http://denied.example./", "http://BÜCHER.example/", "http://b%C3%BCcher.example/", "http://ⓓenied.example/",
	} {
		before := reached.Load()
		if err := send(location); err == nil || reached.Load() != before+1 {
			t.Errorf("%s: %v, and the proxy was asked for %v", location, err, seen.Load())
		}
	}
	if err := send("http://ÖFFENTLICH.example/a?b=%41"); err != nil || seen.Load() != "xn--ffentlich-z7a.example" {
		t.Errorf("a good redirect: %v, the proxy was asked for %v", err, seen.Load())
	}
}

// Through a proxy the destination is judged by its addresses here, and by its name where it has none.
func TestProxied(t *testing.T) {
	var seen atomic.Value
	proxy, reached := counted(t, func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.URL.String()) })
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Proxy = func(r *http.Request) (*url.URL, error) {
		if strings.HasPrefix(r.URL.Host, "direct") {
			return nil, nil
		}
		return at, nil
	}
	o.Resolver, _ = nameServer(t, "10.0.0.1", "93.184.216.34")
	o.Rules = rules(t, "", "denied.example")
	tr := newTransport(t, o)
	send := func(address string) error {
		return tr.Send(t.Context(), push.Message{Address: address, Body: []byte("{}")})
	}
	for _, address := range []string{"http://127.0.0.1:1/", "http://[::1]/", "http://private.example/", "http://denied.example/"} {
		if err := send(address); !errors.Is(err, push.ErrRefused) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if reached.Load() != 0 {
		t.Fatalf("%d requests reached the proxy", reached.Load())
	}
	if err := send("http://public.example/x?y=1"); err != nil || seen.Load() != "http://public.example/x?y=1" {
		t.Errorf("%v, the proxy was asked for %v", err, seen.Load())
	}
	// The proxy itself is no destination.
	if err := send(strings.Replace(proxy.URL, "127.0.0.1", "direct.127.0.0.1.example", 1)); err == nil {
		t.Error("sent")
	}
	o.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }}
	for allow, ok := range map[string]bool{"": true, "*": true, "a.example": true, "b.example": false, "10.0.0.0/8": false} {
		o.Rules = rules(t, allow, "denied.example")
		if tr = newTransport(t, o); (send("http://a.example/") == nil) != ok {
			t.Errorf("allow %q: a name that only the proxy knows: sent is %v", allow, !ok)
		}
		if !errors.Is(send("http://denied.example/"), push.ErrRefused) {
			t.Errorf("allow %q: a denied name that only the proxy knows is sent to", allow)
		}
	}
}
