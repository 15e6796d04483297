package memapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing/fstest"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxFile bounds one file; a must-gather's longest lists stay far below.
const maxFile = 256 << 20

// Reader returns the objects of manifests: every .yaml, .yml and .json file of
// the trees, with several documents, lists and typed lists taken apart. Kinds
// that the scheme does not know can be read as unstructured objects. Of an
// object that occurs twice, the later one counts.
//
// In a tree (a directory, a must-gather), what is no object is skipped and
// named in Problems; a single file from Path must be readable throughout.
// The store indexes nothing until IndexField is called.
func Reader(scheme *runtime.Scheme, files ...fs.FS) (*Store, error) {
	s := newStore(scheme)
	for _, tree := range files {
		_, strict := tree.(oneFile)
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() || !(manifest(name) || strict) {
				return nil
			}
			problems, err := s.readFile(tree, name)
			if err != nil {
				return err
			}
			if strict && len(problems) > 0 {
				return errors.New(problems[0])
			}
			s.problems = append(s.problems, problems...)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
	}
	return s, nil
}

// Path returns what Reader reads for a path of the user: a directory as a
// tree, a file as itself, "-" as standard input.
func Path(name string, stdin io.Reader) (fs.FS, error) {
	if name == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, maxFile))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return oneFile{name: "stdin", data: data}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return os.DirFS(name), nil
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("read %s: it has %d bytes, more than %d", name, info.Size(), maxFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return oneFile{name: filepath.ToSlash(name), data: data}, nil
}

func manifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func (s *Store) readFile(tree fs.FS, name string) (problems []string, err error) {
	shown := name
	if f, ok := tree.(oneFile); ok {
		shown = f.name
	}
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	docs := utilyaml.NewYAMLReader(bufio.NewReader(io.LimitReader(f, maxFile)))
	for i := 1; ; i++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return problems, nil
		}
		if err != nil {
			return append(problems, fmt.Sprintf("%s: document %d: %v", shown, i, err)), nil
		}
		objs, err := decode(doc)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: document %d: %v", shown, i, err))
		}
		for _, u := range objs {
			if err := s.put(u.GroupVersionKind(), u); err != nil {
				problems = append(problems, fmt.Sprintf("%s: document %d: %v", shown, i, err))
			}
		}
	}
}

// decode returns the objects of one YAML or JSON document, none for an empty
// one. Objects it could read come beside an error about others.
func decode(doc []byte) ([]*unstructured.Unstructured, error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return nil, nil
	}
	var raw map[string]any
	js, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(js), []byte("null")) {
		return nil, nil // only comments
	}
	u := &unstructured.Unstructured{}
	// This decoder keeps integers integers.
	if err := utilyaml.Unmarshal(js, &raw); err != nil {
		return nil, fmt.Errorf("it is no object: %w", err)
	}
	u.Object = raw
	return flatten(u, 0)
}

// flatten takes lists apart. Items of a typed list may leave out their kind.
func flatten(u *unstructured.Unstructured, depth int) ([]*unstructured.Unstructured, error) {
	gvk := u.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return nil, errors.New("apiVersion and kind are missing")
	}
	items, isList := u.Object["items"].([]any)
	if !strings.HasSuffix(gvk.Kind, "List") || !isList && u.Object["items"] != nil {
		name, _, err := unstructured.NestedString(u.Object, "metadata", "name")
		if err != nil || name == "" {
			return nil, fmt.Errorf("%s: metadata.name is missing", gvk.Kind)
		}
		if _, err := apimeta.Accessor(u); err != nil {
			return nil, err
		}
		return []*unstructured.Unstructured{u}, nil
	}
	if depth > 2 {
		return nil, fmt.Errorf("%s: lists are nested too deeply", gvk.Kind)
	}
	var out []*unstructured.Unstructured
	var errs []error
	for i, it := range items {
		m, ok := it.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: items[%d] is no object", gvk.Kind, i))
			continue
		}
		item := &unstructured.Unstructured{Object: m}
		if item.GetKind() == "" && gvk.Kind != "List" {
			item.SetGroupVersionKind(schema.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: strings.TrimSuffix(gvk.Kind, "List")})
		}
		more, err := flatten(item, depth+1)
		if err != nil {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
		out = append(out, more...)
	}
	return out, errors.Join(errs...)
}

// oneFile is a tree that holds one file.
type oneFile struct {
	name string
	data []byte
}

// Open implements fs.FS through the standard library's in-memory tree.
func (f oneFile) Open(name string) (fs.File, error) {
	return fstest.MapFS{"file": {Data: f.data, Mode: 0o400}}.Open(name)
}
