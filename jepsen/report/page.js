'use strict';
(() => {
  const byID = id => document.getElementById(id);
  const numbers = JSON.parse(byID('numbers').textContent);
  const wide = byID('wide'), scroll = wide.parentElement, tip = byID('tip'), cross = byID('cross'), band = byID('band');
  const length = Number(wide.dataset.length), under = wide.querySelector('.under .box');

  const copy = byID('copy');
  if (navigator.clipboard) {
    copy.hidden = false;
    copy.onclick = () => navigator.clipboard.writeText(byID('command').textContent).then(() => { copy.textContent = 'Copied'; });
  }

  let zoom = 1;
  const zoomed = (by, at) => {
    const box = under.getBoundingClientRect();
    const share = (at - box.left) / box.width;
    zoom = Math.min(Math.max(zoom * by, 1), 64);
    wide.style.setProperty('--zoom', zoom);
    const now = under.getBoundingClientRect();
    scroll.scrollLeft += now.left + share * now.width - at;
  };
  const controls = document.querySelector('.zoom');
  controls.hidden = false;
  for (const button of controls.children) {
    button.onclick = () => { const r = scroll.getBoundingClientRect(); zoomed(Number(button.dataset.by), r.left + r.width / 2); };
  }
  wide.ondblclick = e => zoomed(e.shiftKey ? 0.5 : 2, e.clientX);

  const ms = v => v >= 1000 ? (v / 1000).toPrecision(3) + ' s' : (v >= 100 ? v.toFixed(0) : v.toPrecision(3)) + ' ms';
  const clock = s => (s >= 3600 ? Math.floor(s / 3600) + ':' + String(Math.floor(s / 60) % 60).padStart(2, '0') : Math.floor(s / 60)) + ':' + String(s % 60).padStart(2, '0');
  const row = (name, n) => name + ': ' + (n[0] ? 'p50 ' + ms(n[1]) + ', p99 ' + ms(n[2]) + ', max ' + ms(n[3]) : 'none');
  const bars = [...wide.querySelectorAll('.bar')].map(bar => ({
    from: parseFloat(bar.style.left), to: parseFloat(bar.style.left) + parseFloat(bar.style.width), bar, text: bar.title,
    name: bar.closest('.fault').querySelector('.label span').textContent,
  }));
  for (const b of bars) b.bar.removeAttribute('title'); // it is in the tip
  const marks = [...wide.querySelectorAll('.mark')].map(mark => ({ mark, text: mark.title }));
  for (const m of marks) m.mark.removeAttribute('title');

  const text = (share, target) => {
    const bar = bars.find(b => b.bar === target);
    if (bar) return bar.text;
    const mark = marks.find(m => m.mark.contains(target));
    if (mark) return mark.text;
    const second = Math.min(Math.floor(share * length), length - 1), n = numbers && numbers[second];
    const lines = [clock(second)];
    if (n) {
      lines.push(n[0] + ' applied, ' + n[1] + ' refused, ' + n[2] + ' unknown', row('latency', n.slice(3, 7)), row('lateness', n.slice(7, 11)));
    }
    const now = bars.filter(b => b.from <= share * 100 && share * 100 <= b.to).map(b => b.name);
    if (now.length) lines.push('faults: ' + now.slice(0, 12).join(', ') + (now.length > 12 ? ' and ' + (now.length - 12) + ' more' : ''));
    return lines.join('\n');
  };
  wide.onmousemove = e => {
    const box = under.getBoundingClientRect(), share = (e.clientX - box.left) / box.width;
    const inside = share >= 0 && share <= 1;
    tip.hidden = cross.hidden = !inside;
    const bar = bars.find(b => b.bar === e.target);
    band.hidden = !bar;
    if (bar) { band.style.left = bar.from + '%'; band.style.width = bar.to - bar.from + '%'; }
    if (!inside) return;
    cross.style.left = share * 100 + '%';
    tip.textContent = text(share, e.target);
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, e.clientX + 16 + w > innerWidth ? e.clientX - w - 16 : e.clientX + 16) + 'px';
    tip.style.top = Math.max(4, Math.min(e.clientY + 16, innerHeight - h - 8)) + 'px';
  };
  wide.onmouseleave = () => { tip.hidden = cross.hidden = band.hidden = true; };
})();
