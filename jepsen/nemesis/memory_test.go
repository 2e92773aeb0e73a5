package nemesis

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
)

// hungryVariable has a process of this test be the one whose memory is limited.
const hungryVariable = "JEPSEN_HUNGRY"

// TestMemoryCap: a process that gets no more memory and needs some ends, and one without the limit
// goes on.
func TestMemoryCap(t *testing.T) {
	if os.Getenv(hungryVariable) != "" {
		_, _ = os.Stdout.WriteString("\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		meals := make([][]byte, 4)
		// more than the runtime has taken from the system and not used; the system looks at the limit
		// when it is exceeded
		for i := range meals {
			meals[i] = make([]byte, 64<<20)
		}
		os.Exit(int(meals[len(meals)-1][os.Getpid()]))
	}
	for _, capped := range []bool{false, true} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryCap$")
		child.Env = append(os.Environ(), hungryVariable+"=1")
		in, inErr := child.StdinPipe()
		out, outErr := child.StdoutPipe()
		if inErr != nil || outErr != nil {
			t.Fatal(inErr, outErr)
		}
		var said bytes.Buffer
		child.Stderr = &said
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(out)
		if _, err := reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if capped {
			if _, err := capMemory(child.Process.Pid, memoryLittle-1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.WriteString(in, "eat\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reader) // until it ends
		if err := child.Wait(); (err != nil) != capped {
			t.Errorf("capped=%v: it ended with %v: %.300s", capped, err, said.Bytes())
		}
	}
}
