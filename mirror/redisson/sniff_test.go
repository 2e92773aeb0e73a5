package redisson

import (
	"strings"
	"testing"
)

func TestSniff(t *testing.T) {
	for _, v := range readVectors(t).Strings {
		for want, digits := range map[string]string{"kryo5-string": v.Kryo5, "river-string": v.River, "fst-string": v.FST} {
			if got := Sniff(unhex(t, digits)); got != want {
				t.Errorf("%s is sniffed as %q, want %q", digits, got, want)
			}
		}
	}
	for payload, want := range map[string]string{
		"\x03hell\xef":                                 "kryo5-string",
		"\x03\x01hell\xef":                             "kryo5-string with references",
		"\x03\x01\x82a":                                "kryo5-string with references",
		"\x01\x00java.util.HashMa\xf0":                 "kryo5 java.util.HashMap",
		"\x01\x00com.x.Order$Lin\xe5\x01\x02\x03":      "kryo5 com.x.Order$Line",
		"\x01\x00[\xc2\x04\x01\x02\x03":                "kryo5 [B",
		"\x01\x00\x82T\x01":                            "kryo5 T",
		"\x7f\x01hell\xef":                             "unknown",
		"\x03\x01hell\xefo":                            "unknown",
		"\x03\x01":                                     "unknown",
		"\x01\x00":                                     "unknown",
		"\x01\x00" + strings.Repeat("x", 300) + "\xf8": "unknown",
		"\x01\x00a b\xe3":                              "unknown",
		"\x01\x00\x81":                                 "unknown",
		"\x04\x3e\x05hello":                            "river-string",
		"\xfc\x05hello":                                "fst-string",
		"\xac\xed\x00\x05t\x00\x05hello":               "jdk",
		`{"orderId":1001}`:                             "json",
		`"hello"`:                                      "json",
		`[1]`:                                          "json",
		`["java.lang.Long",1]`:                         "json-jackson",
		`{"@class":"com.x.Order","id":"A-1"}`:          "json-jackson",
		`{"orderId":`:                                  "string",
		"1":                                            "string",
		"":                                             "string",
		"测试\n":                                         "string",
		"\x09\x02":                                     "unknown", // a long of Kryo5
		"\x09\xf6\xa1\xab\xfe\xf9\x62":                 "unknown",
		"\x04\x4c\x00\x00\x00\x00\x00\x00\x00\x01": "unknown", // a long of River
		"\x00\xff": "unknown",
	} {
		if got := Sniff([]byte(payload)); got != want {
			t.Errorf("%q is sniffed as %q, want %q", payload, got, want)
		}
	}
}
