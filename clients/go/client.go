// Package belay is a client for the locks of a belay server: leases with fencing tokens.
//
//	client, err := belay.Connect("http://127.0.0.1:7420")
//	...
//	lock, err := client.Acquire(ctx, "deploy-api-prod", belay.Options{TTL: time.Minute, Wait: 5 * time.Minute})
//	if errors.Is(err, belay.ErrHeld) {
//		...
//	}
//	defer lock.Release(ctx)
//	err = deploy(lock.Context())
//
// A Lock renews itself in the background. When it is lost, or can no longer be proved, lock.Context() is cancelled and
// lock.Err() says why: before another client can hold the lock, except after a forced unlock. A process that was stopped
// or suspended may be late. So send the token of lock.Token() with each write that the lock protects, and let the
// receiver reject lower ones.
package belay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Client is a client of one lock store, through one server or several. It may be used by several goroutines.
type Client struct {
	servers                   []*server
	current                   atomic.Int64 // the server in use
	token, tokenFile, caFile  string
	timeout                   time.Duration
	owner, ownerName, process string // process is USER@HOST:PID
	warn                      func(text string)
	isOff                     atomic.Bool  // the server has said that its locking is switched off
	store                     atomic.Value // of the first answer: all servers must have this one
	background                context.Context
	stop                      context.CancelFunc
}

type server struct {
	name, base string // as the caller wrote it; what a path is appended to
	http       *http.Client
}

// Option is an option of Connect.
type Option func(*Client)

// WithToken sets the token. The default is $BELAY_AUTH_TOKEN, then the content of the file $BELAY_AUTH_FILE.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithTokenFile names a file with the token.
func WithTokenFile(path string) Option { return func(c *Client) { c.tokenFile = path } }

// WithCAFile names a PEM file with the certificates to trust instead of the system's. The default is $BELAY_CA_FILE.
func WithCAFile(path string) Option { return func(c *Client) { c.caFile = path } }

// WithTimeout sets how long an answer may take, beyond the wait that a request asks for. The default is 10 s.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithOwner sets the defaults of Options.Owner and Options.OwnerName.
func WithOwner(owner, name string) Option {
	return func(c *Client) { c.owner, c.ownerName = owner, name }
}

// WithWarning sets a function for what a person should know although nothing failed: a renewal that is tried again, or
// that the server's locking is switched off. It may be called by several goroutines.
func WithWarning(f func(text string)) Option { return func(c *Client) { c.warn = f } }

// Connect makes a client of a server or, separated by commas, of several servers of the same store: http://HOST:PORT,
// https://HOST:PORT or unix:/PATH. It uses one until that gives no answer, then the next. Connect sends nothing.
func Connect(urls string, options ...Option) (*Client, error) {
	c := &Client{timeout: 10 * time.Second, warn: func(string) {}}
	for _, option := range options {
		option(c)
	}
	c.background, c.stop = context.WithCancel(context.Background())
	host, _ := os.Hostname()
	c.process = fmt.Sprintf("%s@%s:%d", firstOf(os.Getenv("USER"), strconv.Itoa(os.Getuid())), host, os.Getpid())
	trust, err := c.readFiles()
	if err != nil {
		return nil, err
	}
	for _, text := range strings.Split(urls, ",") {
		s, err := newServer(strings.TrimSpace(text), trust)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

// Close stops the renewal of all locks of this client, and releases none: they end with their leases.
func (c *Client) Close() {
	c.stop()
	for _, s := range c.servers {
		s.http.CloseIdleConnections()
	}
}

func invalid(cause error, format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), kind: ErrInvalid, cause: cause}
}

// readFiles reads the token, and returns which certificates to trust; nil: the system's.
func (c *Client) readFiles() (*tls.Config, error) {
	if c.token == "" && c.tokenFile == "" {
		c.token, c.tokenFile = os.Getenv("BELAY_AUTH_TOKEN"), os.Getenv("BELAY_AUTH_FILE")
	}
	if c.token == "" && c.tokenFile != "" {
		text, err := os.ReadFile(c.tokenFile)
		c.token = strings.TrimSpace(string(text))
		if err != nil || c.token == "" || strings.ContainsAny(c.token, " \t\r\n") {
			return nil, invalid(err, "'%s' must be a file with one token and nothing else", c.tokenFile)
		}
	}
	if c.caFile = firstOf(c.caFile, os.Getenv("BELAY_CA_FILE")); c.caFile == "" {
		return nil, nil
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(c.caFile)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		return nil, invalid(err, "'%s' must be a file with CA certificates in PEM form", c.caFile)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func newServer(text string, trust *tls.Config) (*server, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: trust,
		TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &server{text, strings.TrimRight(text, "/"), &http.Client{Transport: transport, CheckRedirect: noRedirect}}
	if path := strings.TrimPrefix(text, "unix:"); path != text && strings.HasPrefix(path, "/") {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		s.base = "http://localhost"
		return s, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || (u.Scheme != "http" && u.Scheme != "https") {
		if strings.Contains(text, "@") {
			text = "(with a password)"
		}
		return nil, invalid(nil, "'%s' is not the URL of a server: write http://HOST:PORT, https://HOST:PORT or unix:/PATH,"+
			" and give a token with WithToken", text)
	}
	return s, nil
}
