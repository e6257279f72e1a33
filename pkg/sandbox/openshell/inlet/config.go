package inlet

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// ConfigName is the file beside the forwarder's program that holds its Config,
// for its owner alone. No argument and no variable says any of it: whoever may
// start programs inside could choose those.
const ConfigName = "forwarder.conf"

// Config is what a forwarder does.
type Config struct {
	// Proxy is the sandbox's own way out: an http URL with an address and a
	// port.
	Proxy string
	// Target is the node's listener, as the sandbox's proxy is asked for it.
	Target string
	Token  Token
	// Listen is where programs inside find the node's proxy: a loopback
	// address and port.
	Listen string
	// Direct are loopback addresses that stand each for one host and port, for
	// programs that speak no proxy's language.
	Direct []Direct
}

// Direct is one address inside for one host outside.
type Direct struct {
	Listen string // loopback address and port
	Host   string // host and port, as the node's proxy is asked for it
}

// Encode writes a Config as the forwarder reads it.
func (c Config) Encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "proxy %s\ntarget %s\ntoken %s\nlisten %s\n", c.Proxy, c.Target, c.Token.Hex(), c.Listen)
	for _, d := range c.Direct {
		fmt.Fprintf(&b, "direct %s %s\n", d.Listen, d.Host)
	}
	return []byte(b.String())
}

// ParseConfig reads what Encode wrote, and wants it whole.
func ParseConfig(text string) (c Config, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if seen[key] && key != "direct" {
			return Config{}, fmt.Errorf("line %d: a second %q", n, key)
		}
		seen[key] = true
		if err := c.set(key, value); err != nil {
			return Config{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for _, key := range []string{"proxy", "target", "token", "listen"} {
		if !seen[key] {
			return Config{}, fmt.Errorf("%q is missing", key)
		}
	}
	return c, lines.Err()
}

func (c *Config) set(key, value string) (err error) {
	switch key {
	case "proxy":
		c.Proxy = value
		_, err = ProxyAddress(value)
	case "target":
		c.Target = value
		err = hostPort(value)
	case "token":
		c.Token, err = ParseToken(value)
	case "listen":
		c.Listen = value
		err = loopback(value)
	case "direct":
		var d Direct
		d.Listen, d.Host, _ = strings.Cut(value, " ")
		c.Direct = append(c.Direct, d)
		err = errors.Join(loopback(d.Listen), hostPort(d.Host))
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

// ProxyAddress is where the proxy of such a URL listens.
func ProxyAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%q is not the http URL of a proxy", text)
	}
	return u.Host, hostPort(u.Host)
}

func loopback(text string) error {
	at, err := netip.ParseAddrPort(text)
	if err != nil || !at.Addr().IsLoopback() || at.Port() == 0 {
		return fmt.Errorf("%q is not a loopback address with a port", text)
	}
	return nil
}

func hostPort(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not a host with a port", text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, " \t\r\n/\\@?#") {
		return fmt.Errorf("%q is not a host with a port", text)
	}
	return nil
}
