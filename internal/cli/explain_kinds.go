package cli

// ownExplainers are the kinds that need no controller of a dialect to be
// explained.
func ownExplainers() []Explainer {
	return configExplainers()
}
