// Package fault wraps a transport.Network and breaks its streams: on order, or at
// random with given probabilities. It works around the operating system's TCP
// (rds demo) and around internal/simnet (tests) alike, because it knows nothing but
// the seam of internal/transport.
//
// In go a network and Options; out come the same streams, some of which fail as
// real ones do, with the errno a real failure has; errors.As finds an *Error that
// says the failure was made here. Of RDS it knows where a header begins and whether
// it has a checksum, and only for flipping bits in it.
//
// A reset made here loses more than one that comes from the network: what the local
// stack had received and acknowledged, but the node had not yet read, is gone,
// although the peer's TCP believes it delivered. Only a protocol with acknowledgements of
// its own survives that; towards a peer that trusts TCP (a kernel) it loses
// messages by design (RDS spec section 11). For resets that leave received bytes
// readable use simnet.
package fault
