package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
)

// secretTTL is how long a Secret's data serve without asking again. Secrets
// are not cached by watch: the controller may read only those of one
// namespace, one by one.
const secretTTL = 15 * time.Second

// secrets reads Secrets and remembers them for a moment, so that a hundred
// Machines of one set cost one read.
type secrets struct {
	r   client.Reader
	clk clock.PassiveClock
	mu  sync.Mutex
	of  map[types.NamespacedName]secret
}

type secret struct {
	data map[string]cloud.Secret
	at   time.Time
}

func newSecrets(r client.Reader, clk clock.PassiveClock) *secrets {
	return &secrets{r: r, clk: clk, of: map[types.NamespacedName]secret{}}
}

func (s *secrets) get(ctx context.Context, key types.NamespacedName) (map[string]cloud.Secret, error) {
	now := s.clk.Now()
	s.mu.Lock()
	have, ok := s.of[key]
	s.mu.Unlock()
	if ok && now.Sub(have.at) < secretTTL {
		return have.data, nil
	}
	var obj corev1.Secret
	if err := s.r.Get(ctx, key, &obj); err != nil {
		s.drop(key)
		return nil, err
	}
	data := make(map[string]cloud.Secret, len(obj.Data))
	for k, v := range obj.Data {
		data[k] = v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, old := range s.of {
		if now.Sub(old.at) >= secretTTL {
			delete(s.of, k)
		}
	}
	s.of[key] = secret{data: data, at: now}
	return data, nil
}

func (s *secrets) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, key)
}

// specs decodes providerSpecs, once per digest of their bytes.
type specs struct {
	codec cloud.SpecCodec
	mu    sync.Mutex
	of    map[[sha256.Size]byte]decoded
}

type decoded struct {
	spec cloud.Spec
	err  error
}

// maxSpecs bounds the remembered specs; sets have few.
const maxSpecs = 512

func newSpecs(codec cloud.SpecCodec) *specs {
	return &specs{codec: codec, of: map[[sha256.Size]byte]decoded{}}
}

// decode returns the spec with its defaults and the digest of its meaning;
// for bytes that cannot be understood, the digest of the bytes.
func (s *specs) decode(raw *runtime.RawExtension, sc cloud.SpecContext) (cloud.Spec, string, error) {
	if raw == nil {
		return nil, "", errors.New("providerSpec.value: Required value: a value must be provided")
	}
	sum := sha256.Sum256(raw.Raw)
	s.mu.Lock()
	d, ok := s.of[sum]
	s.mu.Unlock()
	if !ok {
		d.spec, _, d.err = s.codec.Decode(raw.Raw)
		s.mu.Lock()
		if len(s.of) >= maxSpecs {
			clear(s.of)
		}
		s.of[sum] = d
		s.mu.Unlock()
	}
	if d.err != nil {
		return nil, hex.EncodeToString(sum[:8]), fmt.Errorf("decode provider spec: %w", d.err)
	}
	spec := s.codec.Default(d.spec, sc)
	return spec, s.codec.Digest(spec), nil
}
