package redisson

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestScores(t *testing.T) {
	for _, v := range readVectors(t).Members {
		if ms, err := ParseScore(v.ZscoreReply); err != nil || ms != v.Score {
			t.Errorf("%s is %d, %v; want %d", v.ZscoreReply, ms, err, v.Score)
		}
	}
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "1": 1, "1700000000123": 1700000000123, "9007199254740992": 1 << 53,
		"99999999999999984": 99999999999999984,
	} {
		if ms, err := ParseScore(text); err != nil || ms != want {
			t.Errorf("%s is %d, %v; want %d", text, ms, err, want)
		}
	}
}

func TestScoresThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"1700000000123.5":          "no whole number",
		"0.10000000000000001":      "no whole number",
		"1e-07":                    "no whole number",
		"-1":                       "negative",
		"-0.5":                     "negative",
		"-1e+17":                   "negative",
		"1e+17":                    "1e17",
		"100000000000000000":       "1e17",
		"9223372036854775808":      "1e17",
		"1.7976931348623157e+308":  "1e17",
		"inf":                      "infinite",
		"-inf":                     "infinite",
		"nan":                      "not a number",
		"":                         "no number",
		"soon":                     "no number",
		"1 ":                       "no number",
		"1e+999":                   "no number",
		strings.Repeat("x", 1<<10): "no number",
		"+5":                       "not written",
		"007":                      "not written",
		"1.0":                      "not written",
		"1.7e+12":                  "not written",
		"0x10p0":                   "not written",
		strings.Repeat("0", 1<<10): "not written",
	} {
		ms, err := ParseScore(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.40q is %d, error %v; want it to say %q", text, ms, err, want)
		}
	}
}

// FuzzScore: what is read is written the same way, and every whole number of the range that Redis
// may write is read.
func FuzzScore(f *testing.F) {
	for _, text := range []string{"0", "-0", "1700000000123", "1700000000123.5", "1e+17", "inf", "nan", "-1", "007"} {
		f.Add(text, 1700000000123.0)
	}
	f.Fuzz(func(t *testing.T, text string, score float64) {
		if ms, err := ParseScore(text); err == nil && text != "-0" && strconv.FormatInt(ms, 10) != text {
			t.Errorf("%q is read as %d", text, ms)
		}
		good := score >= 0 && score < 1e17 && score == math.Trunc(score)
		ms, err := ParseScore(strconv.FormatFloat(score, 'f', -1, 64))
		if good != (err == nil) || good && float64(ms) != score {
			t.Errorf("%g is read as %d, %v", score, ms, err)
		}
	})
}
