package host

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millwright.io/millwright/internal/engine/transition"
)

const etc = "/etc/systemd/system/"

func TestInstallSectionsAreRead(t *testing.T) {
	text := strings.Join([]string{
		"[Unit]", "Description=x", "WantedBy=no.target", "[Install]", "# WantedBy=no.target", ";WantedBy=no.target",
		"WantedBy=a.target b.target", " WantedBy = c.target ", `RequiredBy=d.target \`, "  e.target", "UpheldBy=f.service",
		"Alias=g.service", "Also=h.socket", "DefaultInstance=tty1", "Unknown=x", "no equals sign", "[Service]", "WantedBy=no.target",
	}, "\n")
	var got install
	got.read(text)
	want := install{
		wantedBy: []string{"a.target", "b.target", "c.target"}, requiredBy: []string{"d.target", "e.target"}, upheldBy: []string{"f.service"},
		alias: []string{"g.service"}, also: []string{"h.socket"}, defaultInstance: "tty1",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(install{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got.read("[Install]\nWantedBy=\nWantedBy=z.target\n")
	if diff := cmp.Diff([]string{"z.target"}, got.wantedBy); diff != "" {
		t.Errorf("after an empty assignment (-want +got):\n%s", diff)
	}
}

// unitRow is a host, a unit, a wish and what comes of it.
type unitRow struct {
	name, why string
	tree      map[string]string
	unit      string
	want      string // the wish
	links     map[string]string
	word      string // of is-enabled afterwards
	text      string // of the error
}

var unitRows = []unitRow{
	{name: "wanted", tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\nRequiredBy=r.target\nUpheldBy=u.target\n"}, unit: "a.service", want: "enabled",
		links: map[string]string{"m.target.wants/a.service": etc + "a.service", "r.target.requires/a.service": etc + "a.service", "u.target.upholds/a.service": etc + "a.service"}, word: "enabled"},
	{name: "shipped by the vendor", tree: map[string]string{"/usr/lib/systemd/system/a.service": "[Install]\nWantedBy=m.target\n"}, unit: "a.service", want: "enabled",
		links: map[string]string{"m.target.wants/a.service": "/usr/lib/systemd/system/a.service"}, word: "enabled"},
	{name: "ours hides the vendor's", tree: map[string]string{"/usr/lib/systemd/system/a.service": "[Install]\nWantedBy=v.target\n", etc + "a.service": "[Install]\nWantedBy=o.target\n"}, unit: "a.service", want: "enabled",
		links: map[string]string{"o.target.wants/a.service": etc + "a.service"}, word: "enabled"},
	{name: "section in a drop-in", tree: map[string]string{"/usr/lib/systemd/system/a.service": "[Service]\n", etc + "a.service.d/1.conf": "[Install]\nWantedBy=m.target\n", etc + "a.service.d/README": "[Install]\nWantedBy=no.target\n"}, unit: "a.service", want: "enabled",
		links: map[string]string{"m.target.wants/a.service": "/usr/lib/systemd/system/a.service"}, word: "enabled"},
	{name: "alias", tree: map[string]string{etc + "a.service": "[Install]\nAlias=b.service a.service\n"}, unit: "a.service", want: "enabled",
		links: map[string]string{"b.service": etc + "a.service"}, word: "enabled"},
	{name: "also", why: "what stands beside is enabled too, what is missing or masked is no condition",
		tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\nAlso=a.socket none.socket off.socket a.service\n", etc + "a.socket": "[Install]\nWantedBy=sockets.target\nAlso=a.service\n", etc + "off.socket": "-> /dev/null"}, unit: "a.service", want: "enabled",
		links: map[string]string{"m.target.wants/a.service": etc + "a.service", "sockets.target.wants/a.socket": etc + "a.socket"}, word: "enabled"},
	{name: "instance", tree: map[string]string{etc + "a@.service": "[Install]\nWantedBy=m-%i.target\nAlias=x-%p-%i-%%.service\n"}, unit: "a@one.service", want: "enabled",
		links: map[string]string{"m-one.target.wants/a@one.service": etc + "a@.service", "x-a-one-%.service": etc + "a@.service"}, word: "enabled"},
	{name: "template with a default instance", tree: map[string]string{etc + "a@.service": "[Install]\nWantedBy=m.target\nDefaultInstance=tty1\n"}, unit: "a@.service", want: "enabled",
		links: map[string]string{"m.target.wants/a@tty1.service": etc + "a@.service"}, word: "enabled"},
	{name: "template without one", tree: map[string]string{etc + "a@.service": "[Install]\nWantedBy=m.target\n"}, unit: "a@.service", want: "enabled", word: "disabled"},
	{name: "no section", why: "as systemctl: a warning, no error", tree: map[string]string{etc + "a.service": "[Service]\n"}, unit: "a.service", want: "enabled", word: "static"},
	{name: "only also", tree: map[string]string{etc + "a.service": "[Install]\nAlso=a.socket\n"}, unit: "a.service", want: "disabled", word: "indirect"},
	{name: "masked", tree: map[string]string{etc + "a.service": "-> /dev/null", "/usr/lib/systemd/system/a.service": "[Install]\nWantedBy=m.target\n"}, unit: "a.service", want: "enabled",
		word: "masked", text: "error enabling units: unit a.service is masked"},
	{name: "masked by an empty file", tree: map[string]string{etc + "a.service": ""}, unit: "a.service", want: "enabled", word: "masked", text: "error enabling units: unit a.service is masked"},
	{name: "masked until the reboot", tree: map[string]string{"/run/systemd/system/a.service": "-> /dev/null"}, unit: "a.service", want: "preset", word: "masked-runtime"},
	{name: "not there", unit: "a.service", want: "enabled", word: "not-found", text: "error enabling units: unit a.service does not exist"},
	{name: "a broken section", tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=../../../etc/cron.d/x\n"}, unit: "a.service", want: "enabled",
		word: "disabled", text: `error enabling units: unit a.service: [Install] names "../../../etc/cron.d/x", which is no unit`},
	{name: "an alias of another type", tree: map[string]string{etc + "a.service": "[Install]\nAlias=b.timer\n"}, unit: "a.service", want: "enabled",
		word: "disabled", text: `error enabling units: unit a.service: [Install] has the alias "b.timer", which is no service`},
	{name: "no wish at all", tree: map[string]string{etc + "a.service": "[Service]\n"}, unit: "a.service", want: "on", word: "static",
		text: `unit a.service: "on" is no state that a unit can be given; want enabled, disabled or preset`},
	{name: "disabled", why: "every link goes, whatever made it; links of others stay",
		tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\n", etc + "m.target.wants/a.service": "-> " + etc + "a.service", etc + "old.target.requires/a.service": "-> ../a.service",
			etc + "alias.service": "-> a.service", etc + "m.target.wants/b.service": "-> /x/b.service", etc + "empty.wants": ""}, unit: "a.service", want: "disabled",
		links: map[string]string{"m.target.wants/b.service": "/x/b.service"}, word: "disabled"},
	{name: "template disabled", why: "all its instances go",
		tree: map[string]string{etc + "a@.service": "[Install]\nWantedBy=m.target\n", etc + "m.target.wants/a@1.service": "-> ../a@.service", etc + "m.target.wants/a@2.service": "-> ../a@.service"}, unit: "a@.service", want: "disabled", word: "disabled"},
	{name: "preset enables", tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\n",
		"/usr/lib/systemd/system-preset/90-x.preset": "# comment\ndisable b*\nenable a.*\n", "/usr/lib/systemd/system-preset/99-all.preset": "disable *\n"}, unit: "a.service", want: "preset",
		links: map[string]string{"m.target.wants/a.service": etc + "a.service"}, word: "enabled"},
	{name: "preset disables", why: "the first rule of the first file counts, and one in /etc hides its namesake",
		tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\n", etc + "m.target.wants/a.service": "-> " + etc + "a.service",
			"/usr/lib/systemd/system-preset/10-x.preset": "enable *\n", "/etc/systemd/system-preset/10-x.preset": "ignore z.service\ndisable a.service\n", "/usr/lib/systemd/system-preset/20-x.preset": "enable *\n"}, unit: "a.service", want: "preset", word: "disabled"},
	{name: "preset ignores", tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\n", etc + "old.target.wants/a.service": "-> " + etc + "a.service", "/etc/systemd/system-preset/1.preset": "ignore a.service\n"}, unit: "a.service", want: "preset",
		links: map[string]string{"old.target.wants/a.service": etc + "a.service"}, word: "enabled"},
	{name: "no preset at all", why: "systemd enables then", tree: map[string]string{etc + "a.service": "[Install]\nWantedBy=m.target\n"}, unit: "a.service", want: "preset",
		links: map[string]string{"m.target.wants/a.service": etc + "a.service"}, word: "enabled"},
	{name: "preset of what is not there", unit: "a.service", want: "preset", word: "not-found"},
	{name: "linked", tree: map[string]string{"/opt/a.service": "[Service]\n", etc + "a.service": "-> /opt/a.service"}, unit: "a.service", want: "disabled", word: "linked"},
	{name: "another's alias", tree: map[string]string{"/usr/lib/systemd/system/b.service": "[Service]\n", "/usr/lib/systemd/system/a.service": "-> b.service"}, unit: "a.service", want: "disabled", word: "alias"},
	{name: "generated", tree: map[string]string{"/run/systemd/generator/a.mount": "[Mount]\n"}, unit: "a.mount", want: "disabled", word: "generated"},
}

func TestUnitsAreEnabledAsSystemdDoes(t *testing.T) {
	for _, row := range unitRows {
		t.Run(row.name, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				write(t, m.files, row.tree)
				ref := transition.Ref{Kind: transition.KindUnit, Key: row.unit}
				before := observe(t, m, ref)
				step := transition.Step{ID: 1, Ref: ref, Before: before, After: transition.State{Type: transition.Value, Value: row.want}}
				err := m.Perform(context.Background(), step, nil)
				if row.text == "" && err != nil || row.text != "" && (err == nil || err.Error() != row.text) {
					t.Fatalf("got %v, want %q", err, row.text)
				}
				if row.text == "" {
					if diff := cmp.Diff(row.links, dependencies(t, m, row.tree), cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("links (-want +got): %s\n%s", row.why, diff)
					}
				}
				if got := observe(t, m, ref).Value; got != row.word {
					t.Errorf("is-enabled says %q, want %q", got, row.word)
				}
				must(t, m.Perform(context.Background(), step.Inverse(), nil))
				if diff := cmp.Diff(before, observe(t, m, ref), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("after the inverse (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func observe(t *testing.T, m *machine, ref transition.Ref) transition.State {
	t.Helper()
	got, _, err := m.Observe(context.Background(), []transition.Ref{ref})
	must(t, err)
	return got[ref]
}

// dependencies are the links that enable units, without those that are unit files.
func dependencies(t *testing.T, m *machine, tree map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(p string) {
		target, err := m.files.ReadLink(etc + p)
		if err != nil || path.Dir(p) == "." && target == tree[etc+p][min(3, len(tree[etc+p])):] {
			return
		}
		out[p] = target
	}
	top, err := m.list(path.Clean(etc))
	must(t, err)
	for _, name := range top {
		if !slices.Contains(dependencyDirs, path.Ext(name)) {
			add(name)
			continue
		}
		inner, err := m.list(etc + name)
		must(t, err)
		for _, unit := range inner {
			add(name + "/" + unit)
		}
	}
	return out
}

// liveSystem enables units itself.
type liveSystem struct {
	noSystem
	asked []string
}

func (s *liveSystem) ObserveUnit(_ context.Context, name string) (string, error) {
	return "word of " + name, nil
}

func (s *liveSystem) PerformUnit(_ context.Context, step transition.Step) error {
	s.asked = append(s.asked, step.After.Value+" "+step.Key)
	return nil
}

func TestALiveSystemEnablesUnitsItself(t *testing.T) {
	sys := &liveSystem{}
	m := newMachine(newMemory(), Options{System: sys})
	write(t, m.files, map[string]string{etc + "m.target.wants/a.service": "-> ../a.service"})
	ref := transition.Ref{Kind: transition.KindUnit, Key: "a.service"}
	got := observe(t, m, ref)
	want := transition.State{Type: transition.Links, Value: "word of a.service", Values: []string{etc + "m.target.wants/a.service\x00../a.service"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, m.Perform(context.Background(), transition.Step{ID: 1, Ref: ref, After: transition.State{Type: transition.Value, Value: "enabled"}}, nil))
	if diff := cmp.Diff([]string{"enabled a.service"}, sys.asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(t, m.Perform(context.Background(), transition.Step{ID: 2, Ref: ref, After: transition.State{Type: transition.Links}}, nil))
	if left := observe(t, m, ref).Values; len(left) > 0 {
		t.Errorf("links are the host's own business; left %q", left)
	}
}

// FuzzUnitInstall enables whatever a unit says, under any name, and looks at where
// links were made.
func FuzzUnitInstall(f *testing.F) {
	f.Add("a.service", "[Install]\nWantedBy=m.target\nAlias=b.service\nAlso=a.socket\n")
	f.Add("a@b.service", "[Install]\nWantedBy=%i.target ../../x.target\nDefaultInstance=../x\n")
	f.Add("a@.service", "[Install]\nRequiredBy=%%/../x.service\\\n y.target\nDefaultInstance=/etc/passwd\n")
	f.Add(".", "a name that the folder has itself")
	f.Add("a/../../b.service", "[Install]\nUpheldBy=%n%N%p%j.target\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		m := newMachine(newMemory(), Options{})
		if !isUnit(name) {
			err := m.Perform(context.Background(), transition.Step{ID: 1, Ref: transition.Ref{Kind: transition.KindUnit, Key: name}, After: transition.State{Type: transition.Value, Value: "enabled"}}, nil)
			if err == nil {
				t.Fatalf("%q was enabled", name)
			}
			return
		}
		must(t, m.files.Replace(etc+name, []byte(text), Attr{Mode: 0o644}))
		ref := transition.Ref{Kind: transition.KindUnit, Key: name}
		before := observe(t, m, ref)
		step := transition.Step{ID: 1, Ref: ref, Before: before, After: transition.State{Type: transition.Value, Value: "enabled"}}
		err := m.Perform(context.Background(), step, nil)
		for p := range everything(m.files.disk, "/") {
			if !strings.HasPrefix(p, etc) {
				t.Fatalf("enabling %q made %q", name, p)
			}
		}
		if err != nil {
			return
		}
		must(t, m.Perform(context.Background(), step, nil), m.Perform(context.Background(), step.Inverse(), nil))
		if diff := cmp.Diff(before.Values, observe(t, m, ref).Values, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("after the inverse (-want +got):\n%s", diff)
		}
	})
}

// everything yields each file and link below a folder.
func everything(d Disk, dir string) func(func(string) bool) {
	return func(yield func(string) bool) {
		names, err := d.ReadDir(dir)
		if err != nil {
			yield(dir)
			return
		}
		for _, n := range names {
			for p := range everything(d, path.Join(dir, n)) {
				if !yield(p) {
					return
				}
			}
		}
	}
}
