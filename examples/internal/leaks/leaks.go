// Package leaks fails tests that leave goroutines behind.
package leaks

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Main runs the tests of a package and fails when they leave a goroutine behind.
// Nothing is ignored, but a busy machine takes its time to end one.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var leaked error
		err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, 10*time.Second, true,
			func(context.Context) (bool, error) {
				leaked = goleak.Find()
				return leaked == nil, nil
			})
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", leaked)
			code = 1
		}
	}
	os.Exit(code)
}
