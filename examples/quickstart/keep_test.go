package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// operatorOf is an operator with the kubeconfig that -keep prints.
func operatorOf(t *testing.T, s *session) (operator, string) {
	t.Helper()
	s.waitFor("watching; Ctrl-C ends it")
	found := regexp.MustCompile(`--kubeconfig (\S+)`).FindStringSubmatch(s.stdout.String())
	if found == nil {
		t.Fatal("it prints no --kubeconfig")
	}
	return newOperator(t, found[1]), found[1]
}

func newOperator(t *testing.T, kubeconfig string) operator {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return operator{client}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	s := start(t, "-keep")
	op, kubeconfig := operatorOf(t, s)
	seen := []string{"child-1 is Open; "}
	expect := func(err error, texts ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, texts...)
		s.waitFor(seen...)
	}
	ctx := t.Context()
	expect(nil)
	expect(op.setPaused(ctx, own, true), "child-1 is Paused by spec.syncPaused; ", "drained", "held from now on: ")
	expect(op.hold(ctx, own, "nightly"), "child-1 is Paused by spec.syncPaused, backup (nightly); ", " held\n")
	expect(op.setPaused(ctx, own, false), "child-1 is Paused by backup (nightly); ")
	expect(op.hold(ctx, own, nil), "child-1 is Open; ", "caught up: ")
	expect(op.setPaused(ctx, children[1], true), "hub: child-2 is Paused by spec.syncPaused\n")
	s.interrupt()
	s.ends(0)
	expect(nil, "nothing is left behind")
	checkLines(t, s.stdout.String())
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
	if _, err := os.Stat(kubeconfig); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("os.Stat(%q) = %v; want that it is gone", kubeconfig, err)
	}
}

// TestKeepCommands runs the commands as they are printed.
func TestKeepCommands(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl")
	}
	s := start(t, "-keep")
	_, kubeconfig := operatorOf(t, s)
	script := regexp.MustCompile(`(?m)^         (.*)$`).FindAllStringSubmatch(s.stdout.String(), -1)
	var commands strings.Builder
	for _, line := range script {
		commands.WriteString(line[1] + "\n")
	}
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands.String())
	shell.Env = append(os.Environ(), "HOME="+t.TempDir()) // kubectl keeps a cache there
	got, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, got, commands.String())
	}
	for _, want := range []string{"PAUSED", "child-1 patched", "child-1 annotated"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("kubectl printed %q; want %q in it", got, want)
		}
	}
	s.waitFor("child-1 is Paused by spec.syncPaused; ", "child-1 is Open; ",
		"child-1 is Paused by backup (nightly backup); ", "child-1 is Open; ")
	s.interrupt()
	s.ends(0)
	if _, err := os.Stat(kubeconfig); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("os.Stat(%q) = %v; want that it is gone", kubeconfig, err)
	}
}
