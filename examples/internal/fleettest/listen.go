package fleettest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// Listen gives a deployer a listener. The function that it returns waits until the deployer
// serves a page with a status and some words.
func Listen(tb testing.TB, listener *net.Listener) (served func(path string, status int, words ...string)) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() }) // what serves has closed it already
	*listener = l
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Soon}
	get := func(path string) (int, string, error) {
		answer, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	return func(path string, status int, words ...string) {
		tb.Helper()
		Eventually(tb, Soon, func() bool {
			got, body, err := get(path)
			return err == nil && got == status && containsAll(body, words)
		}, func() string {
			got, body, err := get(path)
			return fmt.Sprintf("%s = %d %q, %v; want %d and the words %q", path, got, body, err, status, words)
		})
	}
}
