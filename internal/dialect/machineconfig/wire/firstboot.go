package wire

// LabelManagedCABundle marks user data that the operator writes itself; it leaves
// those without the label to whoever made them, but for authority and token.
const LabelManagedCABundle = Group + "/managed-ca-bundle-derived-from-configmap"
