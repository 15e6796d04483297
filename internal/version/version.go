// Package version holds what this build is called. The values are set once by
// the linker; nothing may change them at run time.
//
// Every binary, user agent, ClusterOperator and agent annotation takes its
// version from here, so that one build never shows two numbers.
package version

import "runtime"

// Version is the release, a semantic version without the leading v. Set by
//
//	-ldflags "-X millwright.io/millwright/internal/version.Version=0.1.0"
var Version = "0.0.0-dev"

// Commit is the source revision, empty when the build did not know it.
var Commit = ""

// UserAgent names one component of this build to a server, in the shape that
// Kubernetes components use: component/version (os/arch) commit.
func UserAgent(component string) string {
	agent := component + "/" + Version + " (" + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if Commit == "" {
		return agent
	}
	return agent + " " + Commit
}
