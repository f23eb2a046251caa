package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/wire"
)

func TestViewVectors(t *testing.T) {
	for _, v := range vectors(t, "K", "S") {
		raw := unhex(t, v.fields[0])
		h, err := wire.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		view, err := wire.View(raw)
		if err != nil {
			t.Fatal(err)
		}
		got := wire.Header{
			Seq: view.Seq(), Ack: view.Ack(), Len: view.Len(), SPort: view.SPort(), DPort: view.DPort(),
			Flags: view.Flags(), Credit: view.Credit(), Pad: view.Pad(), Csum: view.Csum(), Ext: [16]byte(view.Ext()),
		}
		if diff := cmp.Diff(h, got); diff != "" {
			t.Errorf("%s (-header +view):\n%s", v.name, diff)
		}
	}
}

func TestViewShort(t *testing.T) {
	for n := range wire.HeaderLen {
		// The capacity is there, the bytes are not.
		if v, err := wire.View(make([]byte, n, wire.HeaderLen)); !errors.Is(err, wire.ErrShort) || v != nil {
			t.Errorf("%d bytes: %v, %v", n, v, err)
		}
	}
}

func TestViewWindow(t *testing.T) {
	b := append(everyField.AppendTo(nil), "payload"...)
	v, err := wire.View(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(v) != wire.HeaderLen || cap(v) != wire.HeaderLen || len(v.Ext()) != wire.ExtLen || cap(v.Ext()) != wire.ExtLen {
		t.Error("a view must not reach beyond the header")
	}
	v.Ext()[0] = 0xaa
	if b[wire.ExtOffset] != 0xaa {
		t.Error("Ext is a copy")
	}
}

func TestViewSet(t *testing.T) {
	b := append(everyField.AppendTo(nil), "payload"...)
	v, err := wire.View(b)
	if err != nil {
		t.Fatal(err)
	}
	v.SetSeq(1<<63 | 1)
	v.SetAck(1<<62 | 2)
	v.SetFlags(wire.FlagRetransmitted)
	v.SetCsum(0x1234)

	want := everyField
	want.Seq, want.Ack, want.Flags, want.Csum = 1<<63|1, 1<<62|2, wire.FlagRetransmitted, 0x1234
	if diff := cmp.Diff(want, v.Header()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !bytes.Equal(b[wire.HeaderLen:], []byte("payload")) {
		t.Error("the setters touched the payload")
	}
}

func TestViewAllocs(t *testing.T) {
	b := everyField.AppendTo(nil)
	var sum uint64
	noAllocs(t, "view", func() {
		v, err := wire.View(b)
		if err != nil {
			panic(err)
		}
		sum += v.Seq() + v.Ack() + uint64(v.Len()) + uint64(v.Ext()[0])
		v.SetSeq(sum)
		v.SetFlags(0)
		v.Seal()
		if !v.CsumOK() {
			panic("checksum")
		}
	})
}
