package access

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCertNamesHostsOnce: a host that is there anyhow, or is given twice in whatever form, is in
// the output and in the certificate once.
func TestCertNamesHostsOnce(t *testing.T) {
	h, dir := newHarness(t, nil), filepath.Join(t.TempDir(), "certs")
	got := h.Run("cert", "--dir", dir, "--node", "n1=127.0.0.1,0:0::1,LocalHost,a.example,A.EXAMPLE,10.0.0.1,10.0.0.1",
		"-o", "json")
	var made MadeCerts
	if got.Code != 0 || json.Unmarshal([]byte(got.Out), &made) != nil || len(made.Nodes) != 1 {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff([]string{"localhost", "127.0.0.1", "::1", "a.example", "10.0.0.1"},
		made.Nodes[0].Hosts); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(made.Nodes[0].Cert)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	names := cert.DNSNames
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if got := strings.Join(names, " "); got != "a.example localhost 10.0.0.1 127.0.0.1 ::1" {
		t.Errorf("the certificate is for %s", got)
	}
}
