// Package target decides which rendered config a pool aims at: when the inputs
// have settled, what is made of them, what is kept and what is collected, and
// what is said when they cannot be merged. It also says to which pool a node
// belongs.
//
// It never decides which node takes the target when, and it never looks at
// nodes' states: only at the names of configs that somebody still needs.
//
//	out := target.Render(pool, sources, base)
//	d := target.Decide(target.Input{Pool: pool, Outcome: out, …})
package target
