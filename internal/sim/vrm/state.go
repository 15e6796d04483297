package vrm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"millwright.io/millwright/internal/sim/backend"
)

const formatVersion = 1

// state is everything that survives a restart. Maps are keyed by the last
// part of the URN.
type state struct {
	FormatVersion int                   `json:"formatVersion"`
	Site          string                `json:"site"`
	Serial        int                   `json:"serial"`
	Clusters      map[string]*cluster   `json:"clusters"`
	Hosts         map[string]*host      `json:"hosts"`
	Datastores    map[string]*datastore `json:"datastores"`
	Groups        map[string]*named     `json:"datastoreClusters"`
	Switches      map[string]*dvswitch  `json:"switches"`
	Folders       map[string]*named     `json:"folders"`
	VMs           map[string]*vm        `json:"vms"`
	Volumes       map[string]*Volume    `json:"volumes"`
	Tasks         map[string]*task      `json:"tasks"`
}

type named struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type cluster struct {
	named
	DRS   bool   `json:"drs"`
	Next  int    `json:"next"`
	Rules []rule `json:"rules,omitempty"`
}

type rule struct {
	Index int      `json:"ruleIndex"`
	Name  string   `json:"ruleName"`
	Type  int      `json:"ruleType"`
	VMs   []string `json:"vms"` // URNs
}

type host struct {
	named
	IP      string `json:"ip"`
	Cluster string `json:"cluster"` // id
}

type datastore struct {
	named
	Group      string            `json:"group,omitempty"` // id of its datastore cluster
	CapacityGB int               `json:"capacityGB"`
	Refuses    bool              `json:"refuses,omitempty"`
	Files      map[string][]byte `json:"files,omitempty"`
}

type dvswitch struct {
	named
	PortGroups map[string]*named `json:"portGroups"`
}

type vm struct {
	named
	UUID        string   `json:"uuid"`
	Description string   `json:"description,omitempty"`
	Status      string   `json:"status"`
	Template    bool     `json:"template,omitempty"`
	Kubelet     string   `json:"kubelet,omitempty"`
	PVDriver    bool     `json:"pvDriver"`
	Folder      string   `json:"folder,omitempty"` // URN
	Cluster     string   `json:"cluster"`          // id
	Host        string   `json:"host,omitempty"`   // id
	CPUs        int      `json:"cpus"`
	MemoryMB    int      `json:"memoryMB"`
	CDROM       string   `json:"cdrom,omitempty"`
	Born        bool     `json:"born,omitempty"`
	UserData    []byte   `json:"userData,omitempty"`
	Disks       []Disk   `json:"disks"`
	NICs        []NIC    `json:"nics"`
	IPs         []string `json:"ips,omitempty"`
}

// task is one long operation. Do says what happens when it is due.
type task struct {
	ID       string    `json:"id"`
	Do       string    `json:"do"`
	Entity   string    `json:"entity"` // URN
	Name     string    `json:"name"`
	Status   string    `json:"status"`
	Started  time.Time `json:"started"`
	Due      time.Time `json:"due"`
	Ended    time.Time `json:"ended,omitzero"`
	Stalled  bool      `json:"stalled,omitempty"`
	Failure  *Error    `json:"failure,omitempty"`
	Arg      string    `json:"arg,omitempty"`
	Disk     *Disk     `json:"disk,omitempty"`
	Clone    []newDisk `json:"clone,omitempty"`
	AutoBoot bool      `json:"autoBoot,omitempty"`
}

type newDisk struct {
	Disk
	GB           int    `json:"gb"`
	DatastoreURN string `json:"datastoreUrn"`
	Thin         bool   `json:"thin,omitempty"`
}

func (s *state) init() {
	for _, m := range []func(){
		func() { s.Clusters = orEmpty(s.Clusters) }, func() { s.Hosts = orEmpty(s.Hosts) }, func() { s.Datastores = orEmpty(s.Datastores) },
		func() { s.Groups = orEmpty(s.Groups) }, func() { s.Switches = orEmpty(s.Switches) }, func() { s.Folders = orEmpty(s.Folders) },
		func() { s.VMs = orEmpty(s.VMs) }, func() { s.Volumes = orEmpty(s.Volumes) }, func() { s.Tasks = orEmpty(s.Tasks) },
	} {
		m()
	}
}

func orEmpty[T any](m map[string]T) map[string]T {
	if m == nil {
		return map[string]T{}
	}
	return m
}

// sorted returns the values by key: short keys first, so that 9 precedes 10.
func sorted[T any](m map[string]T) []T {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if len(a) != len(b) {
			return cmp.Compare(len(a), len(b))
		}
		return cmp.Compare(a, b)
	})
	out := make([]T, 0, len(keys))
	for _, k := range keys {
		out = append(out, m[k])
	}
	return out
}

// id returns a fresh number; lock held.
func (s *Server) id() string {
	s.st.Serial++
	return strconv.Itoa(s.st.Serial)
}

func (s *Server) urn(kind, id string) string {
	return "urn:sites:" + s.cfg.Site + ":" + kind + ":" + id
}

func (s *Server) uuid() string {
	s.st.Serial++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", s.st.Serial)
}

func (s *Server) load() error {
	s.st = state{FormatVersion: formatVersion, Site: s.cfg.Site, Serial: 100}
	defer s.st.init()
	return s.file.Load(s.decode)
}

func (s *Server) decode(b []byte) error {
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if err := backend.CheckVersion(st.FormatVersion, formatVersion, "the simulated VRM"); err != nil {
		return err
	}
	if st.Site != s.cfg.Site {
		return fmt.Errorf("the file holds site %q, not %q", st.Site, s.cfg.Site)
	}
	s.st = st
	return nil
}

// save writes the state if it changed since the last time.
func (s *Server) save() error {
	return s.file.Save(&s.mu, &s.dirty, func() ([]byte, error) { return json.Marshal(&s.st) })
}
