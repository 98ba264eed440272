package placement_test

import (
	"testing"

	"github.com/clusternet/syncgate/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }
