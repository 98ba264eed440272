package command

import (
	"flag"
	"strings"

	"github.com/clusternet/syncgate/syncgate"
)

// Parties returns a report.Options.Parties of the same parties for each cluster. Without
// any it returns nil, which is the default.
func Parties(names []string) func(syncgate.State) []string {
	if len(names) == 0 {
		return nil
	}
	return func(syncgate.State) []string { return names }
}

// PartiesFlag adds the flag -parties. The func that it returns is for after the flags have
// been parsed.
func PartiesFlag(flags *flag.FlagSet) func() []string {
	names := flags.String("parties", "", "the `programs` that must have drained before a pause is acknowledged, the same for all of them; empty: agent,hub")
	return func() []string {
		return strings.FieldsFunc(*names, func(r rune) bool { return r == ',' || r == ' ' })
	}
}
