// Package scale measures what many Machines cost, in a real world of hollow
// ones: writes and refusals by account, controllers' CPU, waits in their
// queues, private memory. It decides nothing and is run by hand:
//
//	make scale
//
// With -update the figures go into docs/reference/figures.md too. The tests
// are behind the build tag scale, since they take half an hour of two cores.
package scale
