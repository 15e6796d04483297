package vrm

import (
	"slices"
	"strings"
)

func (s *Server) ref(kind string, n named) object {
	u := s.urn(kind, n.ID)
	return object{"urn": u, "uri": uri(u), "name": n.Name}
}

func (s *Server) siteView() object {
	u := "urn:sites:" + s.cfg.Site
	return object{"urn": u, "uri": uri(u), "name": "site", "isSelf": true, "status": "normal"}
}

func (s *Server) sites(*call) (any, *Error) { return object{"sites": []object{s.siteView()}}, nil }
func (s *Server) site(*call) (any, *Error)  { return s.siteView(), nil }

func (s *Server) listClusters(c *call) (any, *Error) {
	out := []object{}
	for _, k := range sorted(s.st.Clusters) {
		if like(k.Name, c.q("name")) {
			out = append(out, s.ref("clusters", k.named))
		}
	}
	return object{"clusters": out}, nil
}

func (s *Server) getCluster(c *call) (any, *Error) {
	k := s.st.Clusters[c.id()]
	if k == nil {
		return nil, missing("The cluster")
	}
	rules := []object{}
	for _, r := range k.Rules {
		vms := []object{}
		for _, u := range r.VMs {
			vms = append(vms, object{"urn": u})
		}
		rules = append(rules, object{"ruleIndex": r.Index, "ruleName": r.Name, "ruleType": r.Type, "vms": vms})
	}
	o := s.ref("clusters", k.named)
	o["isEnableDrs"], o["isEnableHa"] = k.DRS, true
	o["drsSetting"] = object{"drsLevel": 3, "drsRules": rules}
	return o, nil
}

type ruleChange struct {
	Operation int    `json:"operationType"`
	Index     int    `json:"ruleIndex"`
	Name      string `json:"ruleName"`
	Type      int    `json:"ruleType"`
	VMs       []struct {
		URN string `json:"urn"`
	} `json:"vms"`
}

// putCluster changes DRS rules: 0 deletes, 1 modifies, 2 creates.
func (s *Server) putCluster(c *call) (any, *Error) {
	k := s.st.Clusters[c.id()]
	if k == nil {
		return nil, missing("The cluster")
	}
	var in struct {
		DRS struct {
			Rules []ruleChange `json:"drsRules"`
		} `json:"drsSetting"`
	}
	if e := c.decode(&in); e != nil {
		return nil, e
	}
	if !k.DRS {
		return nil, input("DRS is not enabled in the cluster.")
	}
	for _, ch := range in.DRS.Rules {
		if e := s.changeRule(k, ch); e != nil {
			return nil, e
		}
	}
	s.changed()
	return object{}, nil
}

func (s *Server) changeRule(k *cluster, ch ruleChange) *Error {
	var urns []string
	for _, v := range ch.VMs {
		if s.st.VMs[last(v.URN)] == nil {
			return missing("The VM " + v.URN)
		}
		urns = append(urns, v.URN)
	}
	i := slices.IndexFunc(k.Rules, func(r rule) bool { return r.Index == ch.Index })
	switch ch.Operation {
	case 2:
		if ch.Name == "" || strings.Contains(ch.Name, ":") || slices.ContainsFunc(k.Rules, func(r rule) bool { return r.Name == ch.Name }) {
			return input("The rule name is invalid or in use.")
		}
		k.Next++
		k.Rules = append(k.Rules, rule{Index: k.Next, Name: ch.Name, Type: ch.Type, VMs: urns})
		s.spread(urns)
	case 1, 0:
		if i < 0 {
			return missing("The DRS rule")
		}
		if ch.Operation == 0 {
			k.Rules = slices.Delete(k.Rules, i, i+1)
			return nil
		}
		k.Rules[i].VMs = urns
		s.spread(urns)
	default:
		return input("The operationType must be 0, 1 or 2.")
	}
	return nil
}

// spread moves the members of an exclusion rule to hosts of their own, as far
// as there are hosts and no disc keeps a VM where it is.
func (s *Server) spread(urns []string) {
	used := map[string]bool{}
	for _, u := range urns {
		v := s.st.VMs[last(u)]
		if used[v.Host] && v.CDROM == "" {
			for _, h := range sorted(s.st.Hosts) {
				if h.Cluster == v.Cluster && !used[h.ID] {
					v.Host = h.ID
					break
				}
			}
		}
		used[v.Host] = true
	}
}

// place puts a VM on the host of its cluster that has the fewest.
func (s *Server) place(v *vm) {
	if v.Host != "" {
		return
	}
	load := map[string]int{}
	for _, o := range s.st.VMs {
		load[o.Host]++
	}
	for _, h := range sorted(s.st.Hosts) {
		if h.Cluster == v.Cluster && (v.Host == "" || load[h.ID] < load[v.Host]) {
			v.Host = h.ID
		}
	}
}

func (s *Server) listHosts(c *call) (any, *Error) {
	out := []object{}
	for _, h := range sorted(s.st.Hosts) {
		cu := s.urn("clusters", h.Cluster)
		if like(h.Name, c.q("name")) && like(cu, c.q("scope")) {
			o := s.ref("hosts", h.named)
			o["ip"], o["status"], o["clusterUrn"], o["isMaintaining"] = h.IP, "normal", cu, false
			out = append(out, o)
		}
	}
	return page(c, "hosts", out), nil
}

// free is what a datastore has left, in GB; lock held.
func (s *Server) free(d *datastore) int {
	left, u := d.CapacityGB, s.urn("datastores", d.ID)
	for _, v := range s.st.Volumes {
		if v.DatastoreURN == u {
			left -= v.GB
		}
	}
	return left
}

func (s *Server) datastoreView(d *datastore) object {
	o, free := s.ref("datastores", d.named), s.free(d)
	o["status"], o["storageType"], o["capacityGB"], o["freeSizeGB"], o["usedSizeGB"] = "NORMAL", "NAS", d.CapacityGB, free, d.CapacityGB-free
	return o
}

func (s *Server) listDatastores(c *call) (any, *Error) {
	out := []object{}
	for _, d := range sorted(s.st.Datastores) {
		if like(d.Name, c.q("name")) {
			out = append(out, s.datastoreView(d))
		}
	}
	return page(c, "datastores", out), nil
}

func (s *Server) getDatastore(c *call) (any, *Error) {
	if d := s.st.Datastores[c.id()]; d != nil {
		return s.datastoreView(d), nil
	}
	return nil, missing("The datastore")
}

func (s *Server) listGroups(*call) (any, *Error) {
	out := []object{}
	for _, g := range sorted(s.st.Groups) {
		o, members := s.ref("datastoreclusters", *g), []object{}
		for _, d := range sorted(s.st.Datastores) {
			if d.Group == g.ID {
				members = append(members, s.datastoreView(d))
			}
		}
		o["datastores"] = members
		out = append(out, o)
	}
	return object{"datastoreClusters": out}, nil
}

func (s *Server) listSwitches(c *call) (any, *Error) {
	out := []object{}
	for _, w := range sorted(s.st.Switches) {
		if like(w.Name, c.q("name")) {
			o := s.ref("dvswitchs", w.named)
			o["portGroupNum"] = len(w.PortGroups)
			out = append(out, o)
		}
	}
	return object{"dvSwitchs": out}, nil
}

func (s *Server) listPortGroups(c *call) (any, *Error) {
	out := []object{}
	for _, w := range sorted(s.st.Switches) {
		if id := c.id(); id != "" && id != w.ID {
			continue
		}
		for _, p := range sorted(w.PortGroups) {
			if like(p.Name, c.q("portGroupName")) {
				out = append(out, s.ref("dvswitchs:"+w.ID+":portgroups", *p))
			}
		}
	}
	return page(c, "portGroups", out), nil
}

func (s *Server) hasPortGroup(urn string) bool {
	parts := strings.Split(urn, ":")
	if len(parts) != 7 {
		return false
	}
	w := s.st.Switches[parts[4]]
	return w != nil && w.PortGroups[parts[6]] != nil
}

func (s *Server) listFolders(*call) (any, *Error) {
	out := []object{}
	for _, f := range sorted(s.st.Folders) {
		out = append(out, s.ref("folders", *f))
	}
	return object{"folders": out}, nil
}
