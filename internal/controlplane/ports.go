package controlplane

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// ports are the loopback ports of one control plane.
type ports struct {
	APIServer         int `json:"apiServer"`
	Etcd              int `json:"etcd"`
	EtcdPeer          int `json:"etcdPeer"`
	ControllerManager int `json:"controllerManager"`
	Scheduler         int `json:"scheduler"`
}

func (p *ports) all() []*int {
	return []*int{&p.APIServer, &p.Etcd, &p.EtcdPeer, &p.ControllerManager, &p.Scheduler}
}

// portLease is a set of ports that no other control plane of this user on this
// host chooses while it is held.
type portLease struct {
	ports
	locks []*os.File
}

func (l *portLease) release() {
	for _, lock := range l.locks {
		_ = lock.Close()
	}
	l.locks = nil
}

// leasePorts takes the ports that file remembers, replaces those that are
// taken by free ones of the kernel's choice, and writes the result back.
//
// A free port is only free until somebody binds it. Against other control
// planes a lock file per port holds it from here until release; against the
// rest of the host the caller starts again when a component finds it taken.
func leasePorts(file string) (*portLease, error) {
	lease := &portLease{}
	if data, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(data, &lease.ports); err != nil {
			return nil, fmt.Errorf("read ports from %s: %w", file, err)
		}
	}
	dir := filepath.Join(os.TempDir(), "millwright-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make port lock directory: %w", err)
	}
	for _, port := range lease.all() {
		lock, err := leasePort(dir, port)
		if err != nil {
			lease.release()
			return nil, err
		}
		lease.locks = append(lease.locks, lock)
	}
	data, err := json.MarshalIndent(lease.ports, "", "  ")
	if err == nil {
		err = writeFile(file, append(data, '\n'))
	}
	if err != nil {
		lease.release()
		return nil, fmt.Errorf("write ports: %w", err)
	}
	return lease, nil
}

// leasePort keeps *port if it is free, else sets it to another one.
func leasePort(dir string, port *int) (*os.File, error) {
	const tries = 100
	for range tries {
		// The listener is held while the lock is taken: two callers that the
		// kernel gives one port after the other cannot both keep it.
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)))
		if err != nil {
			if *port == 0 {
				return nil, fmt.Errorf("find a free port: %w", err)
			}
			*port = 0
			continue
		}
		got := l.Addr().(*net.TCPAddr).Port
		lock, err := tryLock(filepath.Join(dir, strconv.Itoa(got)))
		_ = l.Close()
		if err != nil {
			return nil, fmt.Errorf("lock port %d: %w", got, err)
		}
		if lock != nil {
			*port = got
			return lock, nil
		}
		*port = 0
	}
	return nil, fmt.Errorf("find a free port: %d tries met ports of other control planes", tries)
}
