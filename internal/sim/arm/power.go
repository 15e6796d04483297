package arm

import (
	"net/http"
	"strings"
)

// act serves what is asked of a resource beside reading and writing it.
func (s *Server) act(c *call, action string) {
	r := s.find(c)
	if r == nil {
		c.fail(s.notFound(c))
		return
	}
	if r.Kind != kindVM {
		c.fail(invalidType(c))
		return
	}
	if strings.EqualFold(action, "instanceView") {
		c.answer(http.StatusOK, s.instanceView(r))
		return
	}
	do := map[string]string{"start": doStart, "poweroff": doPowerOff, "deallocate": doDeallocate, "restart": doRestart, "redeploy": doRestart}[strings.ToLower(action)]
	if do == "" {
		c.fail(fail(http.StatusNotFound, "InvalidResourceType", "The action '"+action+"' is not known to '"+c.kind.typ+"'."))
		return
	}
	if e := s.powerAllowed(r, do); e != nil {
		c.fail(e)
		return
	}
	var failure *Error
	if c.fault != nil {
		failure = c.fault.error()
	}
	s.promise(c, s.startPower(r, do, failure), true)
	c.answer(http.StatusAccepted, nil)
}

func (s *Server) powerAllowed(r *resource, do string) *Error {
	switch {
	case r.state() == stateDeleting:
		return conflict()
	case !r.Born:
		return fail(http.StatusConflict, "OperationNotAllowed", "Operation '"+do+"' is not allowed on VM '"+r.name()+"' since it is being created or its creation failed.")
	case do == doRestart && r.Power != PowerRunning:
		return fail(http.StatusConflict, "OperationNotAllowed", "Operation 'restart' is not allowed on VM '"+r.name()+"' since the VM is not running.")
	}
	return nil
}

// startPower begins a power operation; lock held.
func (s *Server) startPower(r *resource, do string, failure *Error) *operation {
	s.preempt(r)
	put(r.Doc, stateUpdating, "properties", "provisioningState")
	r.Power = map[string]PowerState{doStart: PowerStarting, doPowerOff: PowerStopping, doDeallocate: PowerDeallocating, doRestart: PowerRunning}[do]
	return s.begin(do, r, s.cfg.CreateDelay/4, failure)
}

// undone is the state after a power operation that failed.
func (p PowerState) undone() PowerState {
	switch p {
	case PowerStarting:
		return PowerStopped
	case PowerStopping, PowerDeallocating:
		return PowerRunning
	case PowerRunning, PowerStopped, PowerDeallocated:
	}
	return p
}

// powered is the end of a power operation; lock held.
func (s *Server) powered(r *resource, do string) {
	id := str(r.Doc, "properties", "vmId")
	switch do {
	case doStart:
		r.Power = PowerRunning
		s.inform(func(m Machines) { m.Power(id, true) })
	case doRestart:
		r.Power = PowerRunning
		s.inform(func(m Machines) { m.Power(id, false); m.Power(id, true) })
	case doPowerOff:
		r.Power = PowerStopped
		s.inform(func(m Machines) { m.Power(id, false) })
	case doDeallocate:
		r.Power = PowerDeallocated
		s.inform(func(m Machines) { m.Power(id, false) })
	}
}

// renderVM leaves the secrets out and adds the instance view if asked.
func (s *Server) renderVM(r *resource, expand string) object {
	d := clone(r.Doc)
	if os := sub(d, "properties", "osProfile"); os != nil {
		delete(os, "customData")
		delete(os, "adminPassword")
	}
	if strings.EqualFold(expand, "instanceView") {
		put(d, s.instanceView(r), "properties", "instanceView")
	}
	return d
}

func (s *Server) instanceView(r *resource) object {
	at := stamped(s.cfg.Clock.Now())
	state := strings.ToLower(r.state())
	level := "Info"
	status := object{"code": "ProvisioningState/" + state, "level": level, "displayStatus": displayOf(r.state()), "time": at}
	if r.Failure != nil && r.state() == stateFailed {
		status["code"], status["level"] = "ProvisioningState/failed/"+r.Failure.Code, "Error"
		status["displayStatus"], status["message"] = "Provisioning failed", r.Failure.Message
	}
	statuses := []any{status}
	if r.Power != "" {
		statuses = append(statuses, object{"code": "PowerState/" + string(r.Power), "level": level, "displayStatus": "VM " + string(r.Power)})
	}
	view := object{"statuses": statuses, "hyperVGeneration": "V2"}
	if len(texts(r.Doc, "zones")) == 0 {
		view["platformFaultDomain"], view["platformUpdateDomain"] = 0, 0
	}
	if r.Power == PowerRunning {
		view["computerName"] = str(r.Doc, "properties", "osProfile", "computerName")
	}
	disks := []any{}
	if n := str(r.Doc, "properties", "storageProfile", "osDisk", "name"); n != "" {
		disks = append(disks, object{"name": n, "statuses": []any{object{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded", "time": at}}})
	}
	view["disks"] = disks
	return view
}

func displayOf(state string) string {
	if state == stateSucceeded {
		return "Provisioning succeeded"
	}
	return state
}
