package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxManifest bounds one file of the user.
const maxManifest = 256 << 20

// manifest is one object of the user's files. Raw keeps the object's own
// bytes, as JSON, so that nothing is lost or rounded before an engine sees it.
type manifest struct {
	Kind      schema.GroupVersionKind
	Namespace string
	Name      string
	Raw       json.RawMessage
	Doc       []byte // the document as it was written; nil for items of lists
	Source    source
}

// text is the object as written, as far as there is such a text.
func (m manifest) text() []byte {
	if m.Doc != nil {
		return m.Doc
	}
	return m.Raw
}

// source is where an object stands.
type source struct {
	File string
	Doc  int    // counted from 1
	Item string // items[3] of a list; empty: the document itself
}

func (s source) String() string {
	text := fmt.Sprintf("%s: document %d", s.File, s.Doc)
	if s.Item != "" {
		text += ": " + s.Item
	}
	return text
}

// object is how people call it: "MachineConfig 99-x".
func (m manifest) object() string {
	if m.Namespace != "" {
		return m.Kind.Kind + " " + m.Namespace + "/" + m.Name
	}
	return m.Kind.Kind + " " + m.Name
}

// decode fills a typed object; its error names file, document, object, field.
func (m manifest) decode(into any) error {
	if err := json.Unmarshal(m.Raw, into); err != nil {
		return fmt.Errorf("%s: %s: %w", m.Source, m.object(), fieldError(err))
	}
	return nil
}

// fieldError says which field is wrong, instead of which Go type.
func fieldError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) && t.Field != "" {
		hint := ""
		if t.Type.Kind() == reflect.String && t.Value != "object" && t.Value != "array" {
			hint = "; put it in quotes"
		}
		return fmt.Errorf("%s: a %s stands where %s is wanted%s", t.Field, t.Value, wanted(t.Type.Kind()), hint)
	}
	return err
}

func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "a map"
	default:
		return "a number"
	}
}

// readManifests reads what -f names: files, directories (every .yaml, .yml and
// .json below them) and - for standard input. All broken files are reported,
// not only the first.
func readManifests(names []string, stdin io.Reader, p *progress) ([]manifest, error) {
	files, err := expand(names)
	if err != nil {
		return nil, err
	}
	p.start("reading", "files", len(files))
	defer p.stop()
	var out []manifest
	var errs []error
	for _, f := range files {
		ms, err := readManifest(f, stdin)
		out = append(out, ms...)
		if err != nil {
			errs = append(errs, err)
		}
		p.step()
	}
	if len(errs) > maxErrors {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more files like these", len(errs)-maxErrors))
	}
	return out, errors.Join(errs...)
}

// maxErrors keeps a wrong directory from scrolling the reason away.
const maxErrors = 20

// expand returns the files to read, each once, in the order given and sorted
// within a directory.
func expand(names []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	for _, name := range names {
		if name == "-" {
			add(name)
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			add(name)
			continue
		}
		found := false
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && isManifest(path) {
				found = true
				add(path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if !found {
			return nil, fmt.Errorf("read %s: no .yaml, .yml or .json file in it", name)
		}
	}
	return out, nil
}

func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
}

func readManifest(name string, stdin io.Reader) (out []manifest, err error) {
	in, shown := stdin, "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		in, shown = f, name
	}
	data, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", shown, err)
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("read %s: it has more than %d MiB", shown, maxManifest>>20)
	}
	return parseManifests(shown, data)
}

// parseManifests takes a file's documents and lists apart.
func parseManifests(file string, data []byte) ([]manifest, error) {
	var out []manifest
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; i++ {
		at := source{File: file, Doc: i}
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", at, err)
		}
		js, err := toJSON(doc)
		if err != nil {
			return out, fmt.Errorf("%s: %w", at, err)
		}
		if js == nil {
			continue
		}
		ms, err := flattenManifest(js, schema.GroupVersionKind{}, at, 0)
		if err != nil {
			return out, err
		}
		if len(ms) == 1 && ms[0].Source.Item == "" {
			ms[0].Doc = doc
		}
		out = append(out, ms...)
	}
}

// toJSON returns the JSON of one document, nil for an empty one. A key that
// occurs twice is an error: one of the two would be lost silently.
func toJSON(doc []byte) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(doc)
	if len(trimmed) == 0 {
		return nil, nil
	}
	if trimmed[0] == '{' && json.Valid(trimmed) {
		return trimmed, nil
	}
	js, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(bytes.TrimSpace(js), []byte("null")) {
		return nil, nil
	}
	return js, nil
}

// flattenManifest takes lists apart; kind is that of a typed list's items.
func flattenManifest(js json.RawMessage, kind schema.GroupVersionKind, at source, depth int) ([]manifest, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(js, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", at, fieldError(err))
	}
	if head.Kind != "" || kind.Empty() {
		kind = head.GroupVersionKind()
	}
	if kind.Kind == "" || kind.Version == "" {
		return nil, fmt.Errorf("%s: apiVersion and kind are missing", at)
	}
	if head.Items == nil || !strings.HasSuffix(kind.Kind, "List") {
		if head.Metadata.Name == "" {
			return nil, fmt.Errorf("%s: %s: metadata.name is missing", at, kind.Kind)
		}
		return []manifest{{Kind: kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name, Raw: js, Source: at}}, nil
	}
	if depth > 2 {
		return nil, fmt.Errorf("%s: lists are nested too deeply", at)
	}
	item := schema.GroupVersionKind{}
	if kind.Kind != "List" {
		item = kind
		item.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	var out []manifest
	for i, it := range head.Items {
		at.Item = fmt.Sprintf("items[%d]", i)
		ms, err := flattenManifest(it, item, at, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

// Groups of the kinds that are read.
const (
	groupMachineConfig = "machineconfiguration.openshift.io"
	groupOperator      = "operator.openshift.io"
	groupMachine       = "machine.openshift.io"
	groupConfig        = "config.openshift.io"
)

func (m manifest) is(group, kind string) bool { return m.Kind.Group == group && m.Kind.Kind == kind }

// machineConfig returns the object if it is a MachineConfig.
func (m manifest) machineConfig() (*mcfgv1.MachineConfig, error) {
	if !m.is(groupMachineConfig, "MachineConfig") {
		return nil, nil
	}
	mc := &mcfgv1.MachineConfig{}
	if err := m.decode(mc); err != nil {
		return nil, err
	}
	return mc, nil
}
