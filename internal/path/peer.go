package path

import (
	"time"

	"github.com/rds-go/rds/internal/wire"
)

// Kind says what a peer is.
type Kind uint8

const (
	KindUnknown Kind = iota // no handshake message was parsed yet
	KindKernel              // acknowledges by TCP alone
	KindOwn                 // acknowledges by h_ack
)

func (k Kind) String() string {
	switch k {
	case KindKernel:
		return "kernel"
	case KindOwn:
		return "own"
	}
	return "unknown"
}

// Peer is what the handshake said of the peer, last word first.
type Peer struct {
	Kind       Kind
	Generation uint32 // of its process (own) or module load (kernel); 0 = never told
	NPaths     uint16 // 0 = never told
	SportIdx   bool   // its source ports tell the path's index
	Features   uint16 // own peers only
	Version    uint8  // own peers only
	AckDelay   time.Duration
}

// identified says that a source port of the peer tells the path.
func (p *Peer) identified() bool { return p.SportIdx || p.Kind == KindOwn }

func peerOf(h wire.Handshake) Peer {
	p := Peer{Kind: KindKernel, Generation: h.Generation, NPaths: h.NPaths, SportIdx: h.SportIdx}
	if h.Own {
		p.Kind = KindOwn
		p.Features = h.Features
		p.Version = h.Version
		p.AckDelay = time.Duration(h.MaxAckDelay) * time.Millisecond
		if h.OwnGeneration != 0 {
			p.Generation = h.OwnGeneration
		}
	}
	return p
}

// restarted says whether now is another life of the peer than before.
func restarted(before, now *Peer) bool {
	if before.Kind == KindUnknown {
		return false
	}
	if before.Kind != now.Kind {
		return true
	}
	return before.Generation != 0 && now.Generation != 0 && before.Generation != now.Generation
}
