package admission

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
)

const (
	// secretTTL is how long a Secret's data serve without asking again.
	secretTTL = 15 * time.Second
	// shelfLife is how long a catalogue is good; an older one still serves
	// while the next is read.
	shelfLife = 10 * time.Minute
	// failureLife is how long a catalogue that cannot be read is left alone.
	failureLife = 15 * time.Second
	// fetchLimit ends a read of the catalogue that nobody waits for any more.
	fetchLimit = 30 * time.Second
	// maxRemembered bounds each memory; an installation has few accounts.
	maxRemembered = 256
)

// secrets reads credentials and remembers those that are there.
type secrets struct {
	r   client.Reader
	clk clock.PassiveClock
	mu  sync.Mutex
	of  map[types.NamespacedName]secret
}

type secret struct {
	account cloud.Account
	at      time.Time
}

func newSecrets(r client.Reader, clk clock.PassiveClock) *secrets {
	return &secrets{r: r, clk: clk, of: map[types.NamespacedName]secret{}}
}

func (s *secrets) get(ctx context.Context, key types.NamespacedName) (cloud.Account, error) {
	now := s.clk.Now()
	s.mu.Lock()
	have, ok := s.of[key]
	s.mu.Unlock()
	if ok && now.Sub(have.at) < secretTTL {
		return have.account, nil
	}
	var obj corev1.Secret
	err := s.r.Get(ctx, key, &obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.of, key)
		return cloud.Account{}, err
	}
	account := cloud.Account{Source: key.String(), Data: map[string]cloud.Secret{}}
	for k, v := range obj.Data {
		account.Data[k] = v
	}
	if len(s.of) >= maxRemembered {
		clear(s.of)
	}
	s.of[key] = secret{account: account, at: now}
	return account, nil
}

// fingerprint tells one set of credentials from another.
func fingerprint(a cloud.Account) [sha256.Size]byte {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(a.Data)) {
		_, _ = fmt.Fprintf(h, "%d:%s%d:", len(k), k, len(a.Data[k]))
		_, _ = h.Write(a.Data[k])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// shelf names one part of one account's catalogue.
type shelf struct {
	account [sha256.Size]byte
	region  string
}

type shelves struct {
	regions *memory[[]string]
	sizes   *memory[[]cloud.Size]
}

func newShelves(clk clock.PassiveClock) *shelves {
	return &shelves{regions: newMemory[[]string](clk), sizes: newMemory[[]cloud.Size](clk)}
}

// memory remembers what is slow to read. Readers of one shelf share one fetch,
// which goes on when they have gone.
type memory[T any] struct {
	clk clock.PassiveClock
	mu  sync.Mutex
	of  map[shelf]*entry[T]
}

type entry[T any] struct {
	last    *result[T] // of the latest fetch that ended
	running *fetch[T]
}

type result[T any] struct {
	value T
	err   error
	at    time.Time
}

type fetch[T any] struct {
	done  chan struct{}
	since time.Time
	res   result[T] // set before done is closed
}

func newMemory[T any](clk clock.PassiveClock) *memory[T] {
	return &memory[T]{clk: clk, of: map[shelf]*entry[T]{}}
}

// get returns what is remembered, or waits for the fetch until ctx ends. Only
// the first second of a fetch is waited for: a cloud that hangs costs one
// review a second, not each.
func (m *memory[T]) get(ctx context.Context, key shelf, read func(context.Context) (T, error)) (T, error) {
	last, running := m.look(ctx, key, read)
	if last != nil {
		return last.value, last.err
	}
	var none T
	left := patience - m.clk.Since(running.since)
	ctx, cancel := context.WithTimeout(ctx, max(0, left))
	defer cancel()
	select {
	case <-running.done:
		return running.res.value, running.res.err
	default:
	}
	select {
	case <-running.done:
		return running.res.value, running.res.err
	case <-ctx.Done():
		return none, fmt.Errorf("no answer within %s", patience)
	}
}

// look returns the remembered result if it may be used, else a fetch to wait
// for; it starts one where the result is missing or old.
func (m *memory[T]) look(ctx context.Context, key shelf, read func(context.Context) (T, error)) (*result[T], *fetch[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clk.Now()
	e := m.of[key]
	if e == nil {
		if len(m.of) >= maxRemembered {
			clear(m.of)
		}
		e = &entry[T]{}
		m.of[key] = e
	}
	if e.last != nil {
		age := now.Sub(e.last.at)
		if e.last.err == nil && age < shelfLife || e.last.err != nil && age < failureLife {
			return e.last, nil
		}
	}
	if e.running == nil {
		e.running = &fetch[T]{done: make(chan struct{}), since: now}
		go m.fetch(context.WithoutCancel(ctx), e, e.running, read)
	}
	if e.last != nil && e.last.err == nil {
		return e.last, nil
	}
	return nil, e.running
}

func (m *memory[T]) fetch(ctx context.Context, e *entry[T], f *fetch[T], read func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	value, err := read(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	f.res = result[T]{value: value, err: err, at: m.clk.Now()}
	if e.last == nil || e.last.err != nil || err == nil {
		e.last = &f.res
	} else {
		e.last.at = m.clk.Now().Add(failureLife - shelfLife) // the old one serves on; try again soon
	}
	e.running = nil
	close(f.done)
}
