// Package fromyouzan brings jobs from ouqiang/delay-queue, which is built after Youzan's design, to
// Belfry, and says what its topics hold.
package fromyouzan
