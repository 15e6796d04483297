// Package transition decides how a host gets from one machine config to another:
// it turns the Changes between two configs and the facts of the host into ordered
// Steps. Each Step names what was there before and what will be there after, so
// its inverse is data. Any prefix of the steps followed by the rest ends in the
// new state, any prefix followed by the inverses of it, last first, in the old.
//
// It never touches a host, and it plans nothing that the host's class cannot do:
// that is refused with the reason.
//
//	refs := transition.Touches(in)       // what to look at
//	in.Live, in.Blobs = look(refs)       // the caller's business
//	p := transition.Plan(in)
//	for _, step := range p.Steps { … }   // journal, perform, mark as done
package transition
