package world

import (
	"millwright.io/millwright/internal/dialect/machineapi/admission"
	mcadmission "millwright.io/millwright/internal/dialect/machineconfig/admission"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/webhook"
)

// checkAdmission refuses settings that the webhook of this world would refuse:
// better now than in the log of a pod that does not start.
func checkAdmission(settings []string) error {
	rules := append(admission.Rules(azurespec.Codec{}), mcadmission.Rules()...)
	if _, err := webhook.ParseModes(settings, rules); err != nil {
		return &UsageError{"--admission: " + err.Error()}
	}
	return nil
}
