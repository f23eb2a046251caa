package report

import (
	"fmt"
	"os"
	"strings"
)

// Record replaces what is between the lines "<!-- NAME -->" and "<!-- /NAME -->"
// of a file by text, so that the tables of a document are never copied by hand.
func Record(file, name, text string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- /%s -->\n", name)
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: no lines %q and, after it, %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}
