// Everything works without this script. It refreshes pages that show what changes, unless somebody
// chooses from a list, has selected text, or looks elsewhere. What a person has typed, opened or
// focused stays.
'use strict';

let seconds = Number(document.body.dataset.refresh); // a page of what is under way has fewer
const readMax = 10; // seconds after which a server counts as silent
let askedAt = Date.now(), readAt = askedAt, reading = false, lost = '';

function busy() {
  const active = document.activeElement;
  return document.hidden || String(getSelection()) !== '' || (active && active.tagName === 'SELECT');
}

// keyOf names an element among its neighbours, so that it is found again if others come before it.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return '';
  if (node.id) return '#' + node.id;
  const link = node.tagName === 'TR' ? node.querySelector('a[href]') : null;
  return node.tagName + ' ' + (node.getAttribute('action') || (link && link.getAttribute('href')) || '');
}

const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

// become makes an element like a fresh one. It keeps every part that both have, and with it the
// focus, what was typed and what is open.
function become(old, fresh) {
  for (const {name} of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const {name, value} of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(name === 'open' && old.tagName === 'DETAILS')) old.setAttribute(name, value);
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    let same = at;
    while (same && !alike(same, child)) same = same.nextSibling;
    if (!same) {
      old.insertBefore(child, at);
      continue;
    }
    while (at !== same) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    at = same.nextSibling;
    if (child.nodeType !== Node.ELEMENT_NODE) {
      if (same.data !== child.data) same.data = child.data;
    } else {
      become(same, child);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// tell says at the head of the page why it could not be read again, and how old it is; nothing if
// it could. Only the first part is read aloud, once.
function tell(why) {
  lost = why;
  const [line, age] = document.querySelectorAll('#lost span');
  if (line.textContent !== why) line.textContent = why;
  age.textContent = why && ` This page is ${Math.round((Date.now() - readAt) / 1000)} s old.`;
}

// focusAgain gives the focus back to what had it, or to what took its place.
function focusAgain(had) {
  if (!had || had === document.activeElement) return;
  const href = had.getAttribute('href');
  const next = had.isConnected ? had : href && document.querySelector(`main a[href="${CSS.escape(href)}"]`);
  if (next) next.focus({preventScroll: true});
}

async function refresh() {
  if (busy() || reading) return;
  askedAt = Date.now();
  reading = true;
  try {
    const response = await fetch(location.href, {
      headers: {'X-Belfry-Refresh': '1'}, signal: AbortSignal.timeout(readMax * 1000),
    });
    if (response.redirected) {
      location.reload();
      return;
    }
    if (!response.ok) {
      tell(`The server cannot show this page now (${response.status}).`);
      return;
    }
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    if (busy()) return;
    const had = document.activeElement;
    for (const part of ['main', 'footer']) become(document.querySelector(part), page.querySelector(part));
    focusAgain(had);
    seconds = Number(page.body.dataset.refresh) || seconds;
    readAt = Date.now();
    tell('');
  } catch {
    tell('The server does not answer.');
  } finally {
    reading = false;
  }
}

if (seconds > 0) {
  setInterval(() => {
    if (lost) tell(lost);
    if (Date.now() - askedAt >= seconds * 1000 - 500) refresh();
  }, 1000);
}

// In a narrow window the navigation is one row that scrolls: the entry of the page comes in sight.
const entry = document.querySelector('nav a[aria-current]');
if (entry) entry.closest('ul').scrollLeft = entry.offsetLeft - entry.closest('ul').offsetLeft - 40;

const here = document.getElementById('zone-here');
if (here) {
  here.hidden = false;
  here.addEventListener('click', () => {
    document.getElementById('zone').value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  });
}

for (const button of document.querySelectorAll('button[data-copies]')) {
  button.hidden = false;
  button.addEventListener('click', async () => {
    const text = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    } catch { // a browser allows it through TLS only, so the person copies what is selected
      getSelection().selectAllChildren(text);
      button.textContent = 'Selected';
    }
  });
}

for (const button of document.querySelectorAll('button[data-checks]')) {
  button.hidden = false;
  button.addEventListener('click', () => {
    const boxes = [...document.querySelectorAll(`input[type=checkbox][name="${CSS.escape(button.dataset.checks)}"]`)];
    const all = boxes.every((box) => box.checked);
    for (const box of boxes) box.checked = !all;
  });
}
