package plan

type (
	// CreateConfig makes a config by its whole name. One that exists already
	// and that the decided object controls is success.
	CreateConfig struct{ Name string }
	// UpdateConfig brings a config's content and metadata to what they should
	// be.
	UpdateConfig struct{ Name string }
	// DeleteConfig deletes a config, if it still has this UID.
	DeleteConfig struct{ Name, UID string }
	// SetTarget makes the decided pool aim at a rendered config, made of
	// Sources in the order in which they were merged.
	SetTarget struct {
		Name    string
		Sources []string
	}
	// Annotate writes annotations of the decided object's dialect onto it.
	Annotate struct{ Annotations map[string]string }
)

func (CreateConfig) isAction()        {}
func (CreateConfig) isObjectAction()  {}
func (a CreateConfig) String() string { return "create config " + a.Name }
func (UpdateConfig) isAction()        {}
func (UpdateConfig) isObjectAction()  {}
func (a UpdateConfig) String() string { return "update config " + a.Name }
func (DeleteConfig) isAction()        {}
func (DeleteConfig) isObjectAction()  {}
func (a DeleteConfig) String() string { return "delete config " + a.Name }
func (SetTarget) isAction()           {}
func (SetTarget) isObjectAction()     {}
func (a SetTarget) String() string    { return "aim at config " + a.Name }
func (Annotate) isAction()            {}
func (Annotate) isObjectAction()      {}
func (a Annotate) String() string     { return "write annotations" }
