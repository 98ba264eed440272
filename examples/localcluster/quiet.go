package localcluster

import (
	"math"
	"os"
	"runtime"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/clusternet/syncgate/examples/localcluster/internal/quietzap"
)

// The package comment says why this has to be global, and why here.
func init() {
	quietzap.Restore()

	// Klog has decided about the verbosity before it calls the logger.
	text := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(os.Stderr), textlogger.Verbosity(math.MaxInt32)))
	klog.SetLoggerWithOptions(logr.New(&quietSink{text: text.GetSink()}), klog.WriteKlogBuffer(writeUnlessChatter))
}

// writeUnlessChatter gets the lines of klog.Infof and its like, as klog formatted them.
func writeUnlessChatter(line []byte) {
	// With -skip_headers a line may start with any F; it is shown then, which does no harm.
	isFatal := len(line) > 0 && line[0] == 'F'
	if isFatal || !calledByServer() {
		_, _ = os.Stderr.Write(line)
	}
}

// quietSink gets the lines of klog.InfoS and its like.
type quietSink struct{ text logr.LogSink }

var _ logr.CallDepthLogSink = (*quietSink)(nil)

func (s *quietSink) Init(info logr.RuntimeInfo) {
	info.CallDepth++ // the sink itself
	s.text.Init(info)
}

func (s *quietSink) Enabled(int) bool { return true }

func (s *quietSink) Info(level int, msg string, keysAndValues ...any) {
	if !calledByServer() {
		s.text.Info(level, msg, keysAndValues...)
	}
}

func (s *quietSink) Error(err error, msg string, keysAndValues ...any) {
	if !calledByServer() {
		s.text.Error(err, msg, keysAndValues...)
	}
}

func (s *quietSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &quietSink{text: s.text.WithValues(keysAndValues...)}
}

func (s *quietSink) WithName(name string) logr.LogSink {
	return &quietSink{text: s.text.WithName(name)}
}

func (s *quietSink) WithCallDepth(depth int) logr.LogSink {
	if text, ok := s.text.(logr.CallDepthLogSink); ok {
		return &quietSink{text: text.WithCallDepth(depth)}
	}
	return s
}

// calledByServer tells whether the code that logs is the API server's, or apimachinery's on its behalf. A
// Handler of the program's is called by the server too, but it is found first.
func calledByServer() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		switch name := frame.Function; {
		case strings.HasPrefix(name, "k8s.io/apiserver/"), strings.HasPrefix(name, "k8s.io/apiextensions-apiserver/"):
			return true
		case strings.HasPrefix(name, "k8s.io/klog/v2."), strings.HasPrefix(name, "github.com/go-logr/logr."),
			strings.HasPrefix(name, "k8s.io/apimachinery/"),
			strings.Contains(name, "/localcluster.writeUnlessChatter"), strings.Contains(name, "/localcluster.(*quietSink)"):
			// On the way to it.
		default:
			return false
		}
		if !more {
			return false
		}
	}
}
