package kubelet

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// The test binary is also the component that pods run (millwright-echo) and
// the one command inside a machine's root (tool), chosen by its name.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "millwright-echo":
		os.Exit(echo(os.Args[1:]))
	case "tool":
		os.Exit(tool(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// echo does what its arguments say, in order.
func echo(args []string) int {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("pid", os.Getpid())
	for _, a := range args {
		verb, rest, _ := strings.Cut(a, "=")
		switch verb {
		case "say":
			fmt.Println(rest)
		case "env":
			fmt.Printf("%s is %s\n", rest, os.Getenv(rest))
		case "warn":
			fmt.Fprintln(os.Stderr, rest)
		case "read":
			readMounted(rest)
		case "whoami":
			whoami()
		case "serve":
			go serveEcho(rest)
		case "count":
			go count()
		case "exit":
			code, _ := strconv.Atoi(rest)
			return code
		case "stubborn":
			signal.Ignore(syscall.SIGTERM)
		}
	}
	<-term
	fmt.Println("bye")
	return 0
}

func count() {
	for i := 0; ; i++ {
		fmt.Println("line", i)
		time.Sleep(50 * time.Millisecond)
	}
}

func readMounted(path string) {
	for _, m := range strings.Split(os.Getenv("MILLWRIGHT_MOUNTS"), ";") {
		at, dir, _ := strings.Cut(m, "=")
		if rel, err := filepath.Rel(at, path); err == nil && filepath.IsLocal(rel) {
			b, err := os.ReadFile(filepath.Join(dir, rel))
			fmt.Printf("%s holds %s %v\n", path, b, err)
		}
	}
}

func whoami() {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println("whoami", err)
		return
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		fmt.Println("whoami", err)
		return
	}
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		fmt.Println("whoami", err)
		return
	}
	fmt.Println("I am", me.Status.UserInfo.Username)
}

func serveEcho(port string) {
	err := http.ListenAndServe(net.JoinHostPort(os.Getenv("MILLWRIGHT_BIND_IP"), port), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "served %s", r.URL.Path)
	}))
	fmt.Println("serve", err)
}

// tool is a userland of five commands.
func tool(args []string) int {
	var err error
	switch args[0] {
	case "cat":
		_, err = io.Copy(os.Stdout, os.Stdin)
	case "ls":
		var list []os.DirEntry
		list, err = os.ReadDir(args[1])
		sort.Slice(list, func(i, j int) bool { return list[i].Name() < list[j].Name() })
		for _, e := range list {
			fmt.Println(e.Name())
		}
	case "chroot":
		if err = syscall.Chroot(args[1]); err == nil {
			err = syscall.Exec(args[2], args[2:], os.Environ())
		}
	case "exit":
		code, _ := strconv.Atoi(args[1])
		fmt.Fprintln(os.Stderr, "leaving")
		return code
	case "tty":
		info, serr := os.Stdin.Stat()
		fmt.Println("terminal", serr == nil && info.Mode()&os.ModeCharDevice != 0)
	case "put":
		var b []byte
		if b, err = base64.StdEncoding.DecodeString(args[2]); err == nil {
			err = os.WriteFile(args[1], b, 0o644)
		}
	default:
		err = errors.New("unknown command " + args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// machineRoot makes a root with the tool and one file below /etc.
func machineRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc", "os-release"), []byte("ID=rhcos\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, filepath.Join(root, "bin", "tool")); err == nil {
		return root
	}
	if out, err := exec.Command("cp", self, filepath.Join(root, "bin", "tool")).CombinedOutput(); err != nil {
		t.Fatalf("copy tool: %v: %s", err, out)
	}
	return root
}

// eventually polls until done returns nil, and fails with its last error.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
