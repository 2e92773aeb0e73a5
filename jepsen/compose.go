package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

const (
	// composeNodes is how many nodes docker-compose.yml has; they are n1, n2 and so on.
	composeNodes = 3
	// composeMax is how long it may take to create containers, or to take out of them what is to be
	// kept and to remove them.
	composeMax = 2 * time.Minute
	// The directories that a container has from the harness.
	composeJournals = "/jepsen/journals"
	composeClocks   = "/jepsen/clocks"
)

// compose is the cluster of docker-compose.yml: a copy of that file whose clients come in at an
// address of the run's own, and a second file, laid over it by compose, with what fault injection
// needs. Image, containers, network and volumes have names of the run's own, and are removed with
// it.
type compose struct {
	// root is the directory of the repository, dir that of the run, project the name under which
	// compose has it all.
	root, dir, project string
	// address is the one of this machine at which clients reach the nodes, ports the port of each.
	address string
	ports   map[string]string
	// shards is how many the cluster has, snapshot how many bytes each logs before a snapshot.
	shards   int
	snapshot int64
	// env is added to the environment of the servers.
	env []string
	// created says that there are containers.
	created bool
}

// newCompose returns the cluster of a run, of which nothing exists yet.
func newCompose(ctx context.Context, s *settings, dir string) (*compose, error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for docker-compose.yml: %w", err)
	}
	return &compose{
		root: filepath.Dir(strings.TrimSpace(string(module))), dir: dir,
		project: fmt.Sprintf("belfry-jepsen-%d", os.Getpid()),
		address: fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()>>8%254, os.Getpid()%256), ports: map[string]string{},
		shards: s.shards, snapshot: s.snapshot,
		env: s.env,
	}, nil
}

// prepareContainers makes the lab of a run in containers.
func (e *experiment) prepareContainers(ctx context.Context, names []string) error {
	cluster, err := newCompose(ctx, e.settings, e.dir)
	if err != nil {
		return err
	}
	containers, err := cluster.containers(ctx)
	if err != nil {
		return err
	}
	e.lab, err = lab.New(lab.Config{
		Dir: e.dir, Names: names, Network: cluster, Containers: containers, Logger: e.log,
		Data: func(string) (string, error) { return "/data", nil },
	})
	if err != nil {
		return err
	}
	e.cluster = cluster
	return cluster.create(ctx, e.server, e.lab.Nodes())
}

// image is the name of the run's image.
func (c *compose) image() string {
	return "belfry-jepsen:" + strings.TrimPrefix(c.project, "belfry-jepsen-")
}

// container is the name of a node's container.
func (c *compose) container(node string) string { return c.project + "-" + node }

// file is a path in the directory that holds what compose and docker read.
func (c *compose) file(elements ...string) string {
	return filepath.Join(append([]string{c.dir, "compose"}, elements...)...)
}

// containers returns the containers as the lab uses them.
func (c *compose) containers(ctx context.Context) (*lab.Containers, error) {
	host, err := c.run(ctx, "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err != nil {
		return nil, err
	}
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("--compose needs docker on this machine, which shares files with its containers; docker is "+
			"at %s", host)
	}
	return lab.NewContainers(socket, c.container, c.project+"_default"), nil
}

// create builds the image and creates the containers, which do not run yet. The lab of the run has
// made its directories.
func (c *compose) create(ctx context.Context, program string, nodes []*lab.Node) error {
	for _, n := range nodes {
		// The server of the image runs as a user of its own. Others do not come this far: the directory
		// of the run is closed to them.
		if err := errors.Join(os.MkdirAll(c.file("journals", n.Name), 0o700), os.Chmod(c.file("journals", n.Name), 0o777),
			n.Clock.Publish()); err != nil {
			return fmt.Errorf("making what containers share with the harness: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(c.dir, "clocks"), 0o755); err != nil {
		return fmt.Errorf("making what containers share with the harness: %w", err)
	}
	if err := c.writeFiles(nodes); err != nil {
		return err
	}
	// A command that is cut short in the middle leaves docker at work, and an image or containers that
	// appear after all were removed.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), composeMax)
	defer cancel()
	if err := c.buildImage(whole, program); err != nil {
		return err
	}
	if _, err := c.compose(whole, "up", "--no-start", "--no-build"); err != nil {
		return err
	}
	c.created = true
	return context.Cause(ctx)
}

// buildImage builds the image around the server, as the Makefile does.
func (c *compose) buildImage(ctx context.Context, program string) error {
	if err := os.MkdirAll(c.file("bin", "image", "volume", "data"), 0o755); err != nil {
		return fmt.Errorf("making the directory of the image: %w", err)
	}
	served := c.file("bin", "image", "belfry")
	if err := copyFile(program, served); err != nil {
		return err
	}
	if err := static(served); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(c.root, "Dockerfile"), c.file("Dockerfile")); err != nil {
		return err
	}
	_, err := c.run(ctx, "docker", "build", "--quiet", "--tag", c.image(), "--file", c.file("Dockerfile"),
		c.file("bin", "image"))
	return err
}

// static returns an error if a program needs a loader and libraries, which the image has not.
func static(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("reading the server for the image: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the server for the image is linked to libraries that the image has not; build it with " +
				"CGO_ENABLED=0")
		}
	}
	return nil
}

// writeFiles writes what compose reads.
func (c *compose) writeFiles(nodes []*lab.Node) error {
	text, err := os.ReadFile(filepath.Join(c.root, "docker-compose.yml"))
	if err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}
	moved, err := c.publish(string(text))
	if err != nil {
		return err
	}
	over, err := c.override(nodes)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"docker-compose.yml": []byte(moved), "jepsen.yml": over} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// publish has the ports of docker-compose.yml's nodes published at the address of this run. Compose
// itself cannot: it puts the ports of two files together.
func (c *compose) publish(text string) (string, error) {
	ports := regexp.MustCompile(`ports: \["127\.0\.0\.1:(\d+):(\d+)"\]`)
	found := ports.FindAllStringSubmatch(text, -1)
	if len(found) != composeNodes || strings.Count(text, "ports:") != composeNodes {
		return "", fmt.Errorf("docker-compose.yml publishes other ports than one on 127.0.0.1 for each of %d nodes",
			composeNodes)
	}
	for i, f := range found {
		c.ports[fmt.Sprintf("n%d", i+1)] = f[1]
	}
	return ports.ReplaceAllString(text, `ports: ["`+c.address+`:$1:$2"]`), nil
}

// composeService is what a node's container has beside what docker-compose.yml says.
type composeService struct {
	Image         string            `json:"image"`
	ContainerName string            `json:"container_name"`
	Restart       string            `json:"restart"`
	Environment   map[string]string `json:"environment"`
	Volumes       []composeMount    `json:"volumes"`
}

// composeMount is a directory of the harness in a container.
type composeMount struct {
	Type     string `json:"type"`
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// override returns the file that is laid over docker-compose.yml. JSON is YAML.
func (c *compose) override(nodes []*lab.Node) ([]byte, error) {
	services := map[string]composeService{}
	for _, n := range nodes {
		service := composeService{
			Image: c.image(), ContainerName: c.container(n.Name),
			Restart: "no", // a node that ends by itself must be seen
			Environment: map[string]string{
				"BELFRY_SHARDS": fmt.Sprint(c.shards), "BELFRY_PRINT_ADDRESSES": "true", "BELFRY_LOG_FORMAT": "json",
				"BELFRY_LOG_LEVEL":      "debug",
				"BELFRY_JEPSEN_JOURNAL": composeJournals, "BELFRY_JEPSEN_CLOCK": composeClocks + "/" + n.Name,
				"BELFRY_JEPSEN_SNAPSHOT_BYTES": fmt.Sprint(c.snapshot),
			},
			Volumes: []composeMount{
				{Type: "bind", Source: literal(c.file("journals", n.Name)), Target: composeJournals},
				{Type: "bind", Source: literal(filepath.Join(c.dir, "clocks")), Target: composeClocks, ReadOnly: true},
			},
		}
		for _, setting := range c.env {
			name, value, _ := strings.Cut(setting, "=")
			service.Environment[name] = literal(value)
		}
		services[n.Name] = service
	}
	b, err := json.MarshalIndent(map[string]any{"services": services}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("making the file for compose: %w", err)
	}
	return append(b, '\n'), nil
}

// literal keeps compose from taking a part of a text for a variable.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// removeAll takes the journals out of the containers, and removes containers, network, volumes and
// image as far as they exist. It does so also when ctx has ended, for a run that was interrupted.
func (c *compose) removeAll(ctx context.Context, l *lab.Lab) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), composeMax)
	defer cancel()
	var problems []error
	if c.created {
		problems = append(problems, c.collect(ctx, l))
	}
	if _, err := os.Stat(c.file("jepsen.yml")); err == nil {
		_, err := c.compose(ctx, "down", "--volumes", "--timeout", "1")
		problems = append(problems, err)
	}
	images, err := c.run(ctx, "docker", "images", "--quiet", c.image())
	if err == nil && images != "" {
		_, err = c.run(ctx, "docker", "rmi", c.image())
	}
	return errors.Join(append(problems, err, os.RemoveAll(c.file("bin")), os.RemoveAll(c.file("journals")))...)
}

// collect copies the journals out of the containers. They belong to the server's user; docker hands
// them over as files of the user that asks.
func (c *compose) collect(ctx context.Context, l *lab.Lab) error {
	for _, n := range l.Nodes() {
		if _, err := c.run(ctx, "docker", "cp", c.container(n.Name)+":"+composeJournals+"/.", l.Journals()); err != nil {
			return err
		}
	}
	return nil
}

// compose runs the compose that is installed.
func (c *compose) compose(ctx context.Context, args ...string) (string, error) {
	files := []string{"COMPOSE_PROJECT_NAME=" + c.project, filepath.Join(c.root, "deploy", "compose"), "--file",
		c.file("docker-compose.yml"), "--file", c.file("jepsen.yml")}
	return c.run(ctx, "env", append(files, args...)...)
}

// run runs a program in the directory of the repository, and returns what it wrote to standard
// output.
func (c *compose) run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = c.root
	command.SysProcAttr = apart()
	// with all that it started
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// apart has a command not hear what is typed at the harness's terminal: an interrupt is for the
// harness, which ends it all in order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// copyFile copies a file and its permissions.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	about, err := in.Stat()
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, about.Mode().Perm())
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w", from, err), out.Close())
	}
	return out.Close()
}
