package report

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const doc = "# Doc\n<!-- host -->\nold\n<!-- /host -->\nmore\n<!-- vm -->\n<!-- /vm -->\n"
	if err := os.WriteFile(file, []byte(doc), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first\n", "\nnew\nlines\n\n"} {
		if err := Record(file, "host", text); err != nil {
			t.Fatal(err)
		}
	}
	if err := Record(file, "vm", "x"); err != nil {
		t.Fatal(err)
	}
	const want = "# Doc\n<!-- host -->\n\nnew\nlines\n\n<!-- /host -->\nmore\n<!-- vm -->\n\nx\n\n<!-- /vm -->\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if err := Record(file, "other", "x"); err == nil {
		t.Error("recorded where there is no place")
	}
}
