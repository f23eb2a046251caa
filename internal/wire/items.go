package wire

import (
	"fmt"
	"iter"
)

// ItemType is the first byte of an item in the extension area. There is no
// length byte: the type implies the length of the data.
type ItemType uint8

// The types of RDS spec section 8. On TCP only ItemNPaths, ItemGenNum,
// ItemSportIdx and, between own nodes, ItemPrivate occur.
const (
	ItemNone      ItemType = 0    // ends the list
	ItemVersion   ItemType = 1    // be32 version
	ItemRDMA      ItemType = 2    // be32 rkey
	ItemRDMADest  ItemType = 3    // be32 rkey, be32 offset
	ItemRDMABytes ItemType = 4    // be32 bytes, 8-bit direction, 3 bytes of padding
	ItemNPaths    ItemType = 5    // be16 number of paths
	ItemGenNum    ItemType = 6    // be32 boot generation
	ItemCapBits   ItemType = 7    // be32, vendor kernels
	ItemSportIdx  ItemType = 8    // one byte, 0
	ItemCsum      ItemType = 9    // vendor kernels; the length is not known here
	ItemPrivate   ItemType = 0x0A // our own, see [Handshake]
)

// itemLens is the number of data bytes of each type; 0 where no length is
// known. ItemPrivate is not in it: its length depends on what precedes it.
var itemLens = [...]uint8{
	ItemVersion:   4,
	ItemRDMA:      4,
	ItemRDMADest:  8,
	ItemRDMABytes: 8,
	ItemNPaths:    2,
	ItemGenNum:    4,
	ItemCapBits:   4,
	ItemSportIdx:  1,
	ItemCsum:      0,
}

var itemNames = [...]string{
	ItemNone:      "NONE",
	ItemVersion:   "VERSION",
	ItemRDMA:      "RDMA",
	ItemRDMADest:  "RDMA_DEST",
	ItemRDMABytes: "RDMA_BYTES",
	ItemNPaths:    "NPATHS",
	ItemGenNum:    "GEN_NUM",
	ItemCapBits:   "CAP_BITS",
	ItemSportIdx:  "SPORT_IDX",
	ItemCsum:      "CSUM",
	ItemPrivate:   "PRIVATE",
}

// String names the type for traces.
func (t ItemType) String() string {
	if int(t) < len(itemNames) {
		return itemNames[t]
	}
	return fmt.Sprintf("type 0x%02x", uint8(t))
}

// Items walks the items of an extension area: type and data, in the order in
// which they stand there. The data is part of area, not a copy.
//
// The walk ends at a type-0 byte, at the end of the area, at an item whose
// data would run past that end, and at a type whose length is not known:
// kernels take such a type as one without data and go on inside its data, but
// a guess is worse than an end (RDS spec section 8). A type 0x0A is known only
// if its first data byte is 0; it is the last item whatever follows, and has
// privateLong data bytes, or privateShort when a GEN_NUM item came before it.
//
// A loop over Items allocates nothing, but what is handed to a loop body counts
// as escaping: pass the area of a message's buffer, not of a local variable.
func Items(area []byte) iter.Seq2[ItemType, []byte] {
	return func(yield func(ItemType, []byte) bool) {
		for w := (itemWalk{rest: area}); w.next(); {
			if !yield(w.typ, w.data) {
				return
			}
		}
	}
}

// itemWalk is a walk over an area, see [Items]. ParseHandshake uses it directly,
// so that its caller's area can stay on the stack.
type itemWalk struct {
	rest       []byte   // what is still to be walked
	typ        ItemType // the item
	data       []byte   // its data
	generation bool     // there was a GEN_NUM item
}

// next goes to the next item and tells whether there is one.
func (w *itemWalk) next() bool {
	if len(w.rest) == 0 || w.typ == ItemPrivate {
		return false
	}
	t := ItemType(w.rest[0])
	n := 0
	switch {
	case int(t) < len(itemLens):
		n = int(itemLens[t])
	case t == ItemPrivate && len(w.rest) > 1 && w.rest[1] == 0:
		n = privateLong
		if w.generation {
			n = privateShort
		}
	}
	end := 1 + n
	if n == 0 || end > len(w.rest) {
		return false
	}
	w.typ, w.data, w.rest = t, w.rest[1:end:end], w.rest[end:]
	w.generation = w.generation || t == ItemGenNum
	return true
}
