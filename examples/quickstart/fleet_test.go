package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFleet fixes what a newcomer reads.
func TestFleet(t *testing.T) {
	t.Parallel()
	s := start(t, "-fleet")
	steps := []string{
		"starting a parent cluster and three children",
		"registered child-1 with sync mode Pull, child-2 and child-3 with Dual",
		"started the deployers",
		"later the agents have told the hub that it may deploy to child-2 and child-3 only\n",
		"creating a Description for each child", "api:v1, db:v1, web:v1",
	}
	acts := []struct{ paused, deployer, others, was, is string }{
		{"clusternet-d3e4f/child-2", "the hub", "child-1 and child-3", "v1", "v2"},
		{"clusternet-a1b2c/child-1", "its agent", "child-2 and child-3", "v2", "v3"},
	}
	for _, act := range acts {
		_, name, _ := strings.Cut(act.paused, "/")
		level := "api:" + act.is + ", db:v1, web:" + act.is
		steps = append(steps,
			"patched spec.syncPaused=true on "+act.paused+", to which "+act.deployer+" deploys\n",
			"acknowledged after ", `: SyncPaused=True, "held by spec.syncPaused; drained: agent, hub"`,
			"editing the application for all: api:"+act.is+", web:"+act.is+"\n",
			name+" does not have it yet: its Description says Pending after ", "ms\n", `"kept back when it was due: ManagedCluster `+act.paused+` is held by spec.syncPaused"`,
			"somebody changes an app on "+name+" itself: db:hotfix\n",
			"1.0 s later "+name+" still has api:"+act.was+", db:hotfix, web:"+act.was+"\n",
			"deployers have sent its server no request, read or write, in the ", " since the acknowledgement\n",
			"patched spec.syncPaused=false on "+act.paused+": after ", " it has "+level+"\n",
			"by only 3 writes of "+act.deployer+", each object once: api, db, web\n",
			act.others+" were not affected: 2 writes each since the pause, those of the edit\n",
		)
	}
	steps = append(steps,
		"the children at the end", "NAME",
		"child-1   its agent   api:v3, db:v1, web:v3   8 ",
		"child-2   the hub     api:v3, db:v1, web:v3   8 ",
		"child-3   the hub     api:v3, db:v1, web:v3   7        -  ",
		"stopped, nothing is left behind; it took ",
	)
	s.waitFor(steps...)
	s.ends(0)
	got := s.stdout.String()
	checkLines(t, got)
	// They come in any order.
	for text, want := range map[string]int{
		`child-1 has it after .*, by 3 writes of its agent\n`: 1,
		`child-1 has it after .*, by 2 writes of its agent\n`: 1,
		`child-2 has it after .*, by 3 writes of the hub\n`:   1,
		`child-2 has it after .*, by 2 writes of the hub\n`:   1,
		`child-3 has it after .*, by 3 writes of the hub\n`:   1,
		`child-3 has it after .*, by 2 writes of the hub\n`:   2,
	} {
		if got := len(regexp.MustCompile(text).FindAllString(got, -1)); got != want {
			t.Errorf("it printed %q %d times; want %d", text, got, want)
		}
	}
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
}

// TestWrote shows that the tour fails when a child is written what it should not be.
func TestWrote(t *testing.T) {
	t.Parallel()
	write := func(from, object string) request {
		return request{from: from, object: object, write: true, answered: time.Now()}
	}
	read := request{from: hubName, object: "db"}
	tests := map[string]struct {
		log  []request
		want string // of the error; empty: none
	}{
		"due":           {[]request{write(hubName, "api"), read, write(hubName, "web")}, ""},
		"one too many":  {[]request{write(hubName, "api"), write(hubName, "web"), write(hubName, "web")}, "[api web web] to it; want [api web]"},
		"one missing":   {[]request{read, write(hubName, "web")}, "[web] to it; want [api web]"},
		"by the other":  {[]request{write(hubName, "api"), write(agentName, "web")}, "its agent wrote web to it; only the hub"},
		"by a stranger": {[]request{write("curl", "api"), write(hubName, "web")}, "curl wrote api"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSites()[1]
			s.due = []string{"api", "web"}
			s.log.all = test.log
			err := s.wrote()
			if test.want == "" {
				if err != nil {
					t.Errorf("wrote() = %v; want nil", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "; please report this bug") {
				t.Errorf("wrote() = %v; want %q in it, and what to do", err, test.want)
			}
		})
	}
}
