package beanstalkd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// sequencesVariable is how many sequences TestAsBeanstalkd tries, and seedVariable the seed.
	sequencesVariable = "BELFRY_BEANSTALKD_SEQUENCES"
	seedVariable      = "BELFRY_BEANSTALKD_SEED"
	sequencesDefault  = 400
	// sequencesMax is how many sequences a server gets: beanstalkd looks through all its tubes for one.
	sequencesMax = 4000
	// sequencesAtOnce is how many sequences run side by side, since some of them wait.
	sequencesAtOnce = 32
	commandsMax     = 40
)

// reference starts a beanstalkd, and returns its address.
func reference(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("beanstalkd")
	if err != nil {
		t.Fatalf("%v; install it with: apt-get install beanstalkd", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	host, port, _ := strings.Cut(address, ":")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), program, "-l", host, "-p", port)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if the test runs out of time
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	for until := time.Now().Add(time.Minute); ; {
		c, err := dial(t.Context(), address)
		if err == nil {
			_ = c.Close()
			return address
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func variable(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestAsBeanstalkd sends random sequences of commands to the door and to a beanstalkd. The answers
// are the same but for the ids of jobs and times.
func TestAsBeanstalkd(t *testing.T) {
	sequences, seed := variable(t, sequencesVariable, sequencesDefault), variable(t, seedVariable, rand.Uint64())
	t.Logf("%s=%d", seedVariable, seed)
	for done := uint64(0); done < sequences && !t.Failed(); done += sequencesMax {
		last := min(done+sequencesMax, sequences)
		t.Run(fmt.Sprintf("%d-%d", done+1, last), func(t *testing.T) { compareSequences(t, seed, done+1, last) })
	}
}

// compareSequences tries some sequences.
func compareSequences(t *testing.T, seed, first, last uint64) {
	theirs := reference(t)
	ours, _ := serve(t)
	var next atomic.Uint64
	next.Store(first - 1)
	var group sync.WaitGroup
	for range sequencesAtOnce {
		group.Go(func() {
			for n := next.Add(1); n <= last && !t.Failed(); n = next.Add(1) {
				s := &sequence{random: rand.New(rand.NewPCG(seed, n)), name: fmt.Sprintf("s%d.", n)}
				if err := s.run(t.Context(), ours, theirs); err != nil {
					t.Errorf("sequence %d: %v\n%s", n, err, strings.Join(s.log, "\n"))
				}
			}
		})
	}
	group.Wait()
}

// TestTimesAsBeanstalkd: delays and pauses that end, in sequences in which it does not matter how fast
// the machine is. Leases are not among them: beanstalkd 1.12 was seen to keep a job whose lease had
// ended while no connection waited.
func TestTimesAsBeanstalkd(t *testing.T) {
	theirs := reference(t)
	ours, _ := serve(t)
	var group sync.WaitGroup
	for n, commands := range [][]string{
		{"0 put 5 1 100 1\nd", "0 put 9 0 100 1\ne", "0 reserve", "0 reserve-with-timeout 100", "0 reserve-with-timeout 1"},
		{"0 put 5 1 100 1\na", "0 put 5 2 100 1\nb", "0 put 5 1 100 1\nc", "1 reserve", "1 reserve", "1 reserve"},
		{"0 put 5 0 100 1\na", "0 put 5 0 100 1\nb", "0 reserve", "0 release #0 5 1", "1 reserve", "1 reserve",
			"1 stats-job #0", "1 release #0 5 0", "1 release #1 5 0", "0 reserve", "0 reserve"},
		{"0 put 5 0 100 1\na", "0 pause-tube T 1", "1 reserve", "1 stats-job #0"},
	} {
		group.Go(func() {
			s := &sequence{name: fmt.Sprintf("t%d.", n)}
			if err := s.script(t.Context(), ours, theirs, commands); err != nil {
				t.Errorf("sequence %d: %v\n%s", n, err, strings.Join(s.log, "\n"))
			}
		})
	}
	group.Wait()
}

// sequence is one sequence of commands, of one to three connections.
type sequence struct {
	random *rand.Rand
	name   string // begins the names of its tubes
	ours   []*client
	theirs []*client
	// ids has the ids of each job: at ours, at theirs.
	ids    [][2]string
	delays int // how many there were
	log    []string
}

// script carries out commands that begin with the number of a connection, and in which T is the tube.
func (s *sequence) script(ctx context.Context, ours, theirs string, commands []string) error {
	defer s.close()
	tube := s.name + "tube"
	for i := range 2 {
		if err := s.connect(ctx, ours, theirs); err != nil {
			return err
		}
		for _, command := range []string{"use ", "watch "} {
			if err := s.ask(i, command+tube); err != nil {
				return err
			}
		}
	}
	for _, command := range commands {
		i, text, _ := strings.Cut(command, " ")
		if err := s.ask(int(i[0]-'0'), strings.ReplaceAll(text, "T", tube)); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequence) close() {
	for _, c := range slices.Concat(s.ours, s.theirs) {
		_ = c.Close()
	}
}

// connect adds a connection to both.
func (s *sequence) connect(ctx context.Context, ours, theirs string) error {
	mine, err := dial(ctx, ours)
	if err != nil {
		return err
	}
	s.ours = append(s.ours, mine)
	other, err := dial(ctx, theirs)
	if err != nil {
		return err
	}
	s.theirs = append(s.theirs, other)
	return nil
}

// run carries out the sequence, and returns the first difference.
func (s *sequence) run(ctx context.Context, ours, theirs string) error {
	defer s.close()
	for range 1 + s.random.IntN(3) {
		if err := s.connect(ctx, ours, theirs); err != nil {
			return err
		}
		if err := s.ask(len(s.ours)-1, "watch "+s.tube()); err != nil {
			return err
		}
		if err := s.ask(len(s.ours)-1, "ignore default"); err != nil {
			return err
		}
		if err := s.ask(len(s.ours)-1, "use "+s.tube()); err != nil {
			return err
		}
	}
	for range 1 + s.random.IntN(commandsMax) {
		if err := s.ask(s.random.IntN(len(s.ours)), s.command()); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequence) tube() string {
	return s.name + []string{"a", "b", "c+;$()/d/e", "n/x"}[s.random.IntN(4)]
}

// job returns a number of a job of the sequence, or of none.
func (s *sequence) job() string {
	if len(s.ids) == 0 || s.random.IntN(20) == 0 {
		return "#none"
	}
	return "#" + strconv.Itoa(s.random.IntN(len(s.ids)))
}

func (s *sequence) priority() uint32 {
	return []uint32{0, 1, 1023, 1024, 1 << 31, 4294967295}[s.random.IntN(6)]
}

// delay returns a delay in seconds that is not over before the sequence, and is far from those before:
// jobs that are due in the same millisecond go by their ids here, and by nanoseconds in beanstalkd.
func (s *sequence) delay() int {
	s.delays++
	return 1000 + s.random.IntN(100)*10*commandsMax + 10*s.delays
}

// command returns a command in which #N stands for the id of a job.
func (s *sequence) command() string {
	r := s.random
	switch r.IntN(28) {
	case 0, 1, 2, 3, 4, 5:
		body := strings.Repeat("x", r.IntN(4))
		delay := r.IntN(2) * r.IntN(2) * s.delay()
		return fmt.Sprintf("put %d %d %d %d\n%s", s.priority(), delay, 100+r.IntN(100), len(body), body)
	case 6, 7, 8, 9, 10:
		return "reserve-with-timeout 0"
	case 11, 12, 13:
		return "delete " + s.job()
	case 14:
		return fmt.Sprintf("release %s %d %d", s.job(), s.priority(), r.IntN(2)*s.delay())
	case 15:
		return fmt.Sprintf("release %s %d 0", s.job(), s.priority())
	case 16, 17:
		return fmt.Sprintf("bury %s %d", s.job(), s.priority())
	case 18:
		return fmt.Sprintf("kick %d", r.IntN(4))
	case 19:
		return "kick-job " + s.job()
	case 20:
		return "touch " + s.job()
	case 21:
		return []string{"peek " + s.job(), "peek-ready", "peek-delayed", "peek-buried"}[r.IntN(4)]
	case 22:
		return "stats-job " + s.job()
	case 23:
		return []string{"watch ", "ignore ", "use "}[r.IntN(3)] + s.tube()
	case 24:
		return "stats-tube " + s.tube()
	case 25:
		return "reserve-job " + s.job()
	case 26:
		return []string{
			"list-tube-used", "list-tubes-watched", "pause-tube " + s.tube() + " " + strconv.Itoa(r.IntN(2)*1000),
			"put 1 2 x 4", "delete 1x", "nothing", "watch -a", "use", "reserve x",
		}[r.IntN(9)]
	default:
		return "reserve-with-timeout 0"
	}
}

// ask sends a command through connection i of both, and compares the answers.
func (s *sequence) ask(i int, command string) error {
	both := []*client{s.ours[i], s.theirs[i]}
	for side, c := range both { // first, so that both wait at the same time
		if err := c.send(s.withIDs(command, side) + "\n"); err != nil {
			return err
		}
	}
	var answers [2]string
	for side, c := range both {
		answer, err := c.receive()
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		answers[side] = answer
	}
	id, ok := strings.CutPrefix(answers[0], "INSERTED ")
	if other, too := strings.CutPrefix(answers[1], "INSERTED "); ok && too {
		s.ids = append(s.ids, [2]string{id, other})
	}
	ours, theirs := s.normal(answers[0], 0), s.normal(answers[1], 1)
	s.log = append(s.log, fmt.Sprintf("%d %q -> %q", i, command, ours))
	if ours != theirs {
		return fmt.Errorf("%q was answered with %q, beanstalkd answers %q", command, ours, theirs)
	}
	return nil
}

// withIDs replaces the numbers of jobs by their ids.
func (s *sequence) withIDs(command string, side int) string {
	before, after, ok := strings.Cut(command, "#")
	if !ok {
		return command
	}
	number, rest, _ := strings.Cut(after, " ")
	id := "9999999999"
	if n, err := strconv.Atoi(number); err == nil {
		id = s.ids[n][side]
	}
	if rest != "" {
		rest = " " + rest
	}
	return before + id + rest
}

// normal returns an answer without times, and with the numbers of jobs in place of their ids.
func (s *sequence) normal(answer string, side int) string {
	word, rest, _ := strings.Cut(answer, " ")
	switch word {
	case "INSERTED", "RESERVED", "FOUND":
		id, after, _ := strings.Cut(rest, " ")
		i := slices.IndexFunc(s.ids, func(ids [2]string) bool { return ids[side] == id })
		return fmt.Sprintf("%s #%d %s", word, i, after)
	case "OK":
		var lines []string
		for line := range strings.Lines(rest[strings.IndexByte(rest, ' ')+1:]) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch name {
			case "id":
				value = strconv.Itoa(slices.IndexFunc(s.ids, func(ids [2]string) bool { return ids[side] == value }))
			case "age", "time-left", "pause", "pause-time-left", "delay":
				continue
			case "cmd-pause-tube", "total-jobs", "cmd-delete":
				// beanstalkd forgets them when the tube is empty and no connection refers to it. The door forgets the
				// first when no connection does, and never the others.
				continue
			}
			lines = append(lines, name+" "+value)
		}
		return word + " " + strings.Join(lines, ", ")
	default:
		return answer
	}
}
