package stress

// ring is a queue that grows as needed and keeps its memory. Its owner bounds its length.
type ring[T any] struct {
	items []T // its length is 0 or a power of two
	head  int // index of the first
	n     int
}

func (r *ring[T]) len() int { return r.n }

// at returns the place of the i-th from the front.
func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.items) {
		larger := make([]T, max(8, 2*len(r.items)))
		for i := range r.n {
			larger[i] = *r.at(i)
		}
		r.items, r.head = larger, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop removes the first. There must be one.
func (r *ring[T]) pop() T { return r.remove(0) }

// remove removes the i-th from the front. There must be one.
func (r *ring[T]) remove(i int) T {
	v := *r.at(i)
	for ; i > 0; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.n--
	return v
}
