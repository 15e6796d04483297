package node

import (
	"fmt"
	"strings"
)

// Annotations of ours on a Node, by which a person asks its agent for something once.
// Their value is the name of a config. The agent removes them when it is done with
// them, however it ended.
const (
	// RecoverRequest asks a broken node to take the config that it should have now:
	// every item is looked at, what was tried before does not count, and it reboots
	// only for what nothing else makes true. Named another config than desiredConfig,
	// it is dropped.
	RecoverRequest = "millwright.io/recover"
	// Recovering stands on the Node in its place, with the same value, from when the
	// host's part begins until it is known how it ended.
	Recovering = "millwright.io/recovering"
	// AdoptRequest asks a node to call its disk by the name of a config that the
	// disk already agrees with. Nothing but the record of the name is written; a
	// disk that differs keeps the name it has.
	AdoptRequest = "millwright.io/adopt"
)

// Asked tells that a person waits for the agent to do something.
func Asked(annotations map[string]string) bool {
	return annotations[RecoverRequest] != "" || annotations[AdoptRequest] != ""
}

// asked lets a request for recovery change what the decision goes by.
func (p *planner) asked() {
	name, ok := p.in.Annotations[RecoverRequest]
	if !ok {
		return
	}
	if name != p.in.Annotations[DesiredConfig] {
		p.note(fmt.Sprintf("Dropping the request to recover with %s; the node should have %s", name, p.in.Annotations[DesiredConfig]))
		p.unset(RecoverRequest)
		return
	}
	p.recovering = true
	p.in.SelfHeal, p.in.Repair = true, true
	p.in.Failures, p.in.Failed, p.in.Reapplied = 0, "", false
}

// answered ends a request for recovery.
func (p *planner) answered() {
	if p.recovering {
		p.unset(RecoverRequest)
	}
	p.unset(Recovering)
}

// adopt answers a request for another name of the same disk. The annotations come
// last: an agent that dies in between is asked again. false: there is no request, or
// it was refused, and the decision goes on.
func (p *planner) adopt() bool {
	name, ok := p.in.Annotations[AdoptRequest]
	if !ok {
		return false
	}
	c, ok := p.in.Known[name]
	if !ok {
		p.d.Fetch = name
		return true
	}
	if c == nil {
		return p.keepName(name, notFound(name))
	}
	if p.in.Facts.FIPS != nil && *p.in.Facts.FIPS != c.Spec.FIPS {
		return p.keepName(name, "detected change to FIPS flag; refusing to modify FIPS on a running cluster")
	}
	list, ok := p.differences(name)
	if !ok {
		return true
	}
	if len(list) > 0 {
		texts := make([]string, 0, len(list))
		for _, d := range list {
			texts = append(texts, d.Reason)
		}
		return p.keepName(name, strings.Join(texts, "; "))
	}
	if p.in.Disk == nil || p.in.Disk.Name != name {
		p.d.Action, p.d.Change = Adopt, Change{To: *c}
		return true
	}
	p.note("Adopted " + name + ": the disk agrees with it")
	p.set(CurrentConfig, name)
	p.set(DesiredConfig, name)
	p.unset(AdoptRequest)
	return true
}

// keepName refuses to adopt.
func (p *planner) keepName(name, why string) bool {
	p.note(fmt.Sprintf("Not adopting %s: %s", name, why))
	p.unset(AdoptRequest)
	return false
}

// unset removes an annotation if it is there.
func (p *planner) unset(key string) {
	if _, ok := p.in.Annotations[key]; !ok {
		return
	}
	if p.d.Set == nil {
		p.d.Set = map[string]*string{}
	}
	p.d.Set[key] = nil
}
