package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// client speaks to nodes over HTTP.
type client struct {
	// be is host:port, for doctor several with commas.
	be    string
	token string
	http  http.Client
}

// timeout bounds one request, maxAnswer its answer.
const (
	timeout   = 35 * time.Second
	maxAnswer = 256 << 20
)

func newClient(be, token string) *client {
	return &client{be: be, token: token, http: http.Client{Timeout: timeout}}
}

// refusal is an answer that is no success.
type refusal struct {
	status        int
	Code, Message string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%s (%d %s)", r.Message, r.status, r.Code) }

// call asks the BE and returns the body of an answer 200.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body string) ([]byte, error) {
	return c.at(ctx, c.be, method, path, query, body)
}

// at asks the node at addr.
func (c *client) at(ctx context.Context, addr, method, path string, query url.Values, body string) ([]byte, error) {
	target := url.URL{Scheme: "http", Host: addr, Path: path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return text, nil
	}
	refused := &refusal{status: resp.StatusCode}
	if json.Unmarshal(text, refused) != nil || refused.Message == "" {
		refused.Message, refused.Code = strings.TrimSpace(string(text)), http.StatusText(resp.StatusCode)
	}
	return nil, refused
}

// getJSON decodes what a node answers to a GET.
func (c *client) getJSON(ctx context.Context, addr, path string, query url.Values, into any) error {
	text, err := c.at(ctx, addr, http.MethodGet, path, query, "")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s answers to %s with what is no such JSON: %w", addr, path, err)
	}
	return nil
}

// configOf returns the values of a node's keys.
func (c *client) configOf(ctx context.Context, addr string) (map[string]string, error) {
	var rows [][4]string
	if err := c.getJSON(ctx, addr, "/api/show_config", nil, &rows); err != nil {
		return nil, err
	}
	values := make(map[string]string, len(rows))
	for _, r := range rows {
		values[r[0]] = r[2]
	}
	return values, nil
}
