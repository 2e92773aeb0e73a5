// Everything works without this script. It refreshes pages that show what changes, unless somebody
// is typing, has selected text, or looks elsewhere.
'use strict';

const seconds = Number(document.body.dataset.refresh);

function busy() {
  const active = document.activeElement;
  return document.hidden || String(getSelection()) !== '' ||
    (active && /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName)) ||
    [...document.querySelectorAll('main input:not([type=hidden])')].some((input) => input.value !== input.defaultValue);
}

async function refresh() {
  if (busy()) return;
  try {
    const response = await fetch(location.href, {headers: {'X-Belfry-Refresh': '1'}});
    if (response.redirected) {
      location.reload();
      return;
    }
    if (!response.ok) throw new Error(response.status);
    const page = new DOMParser().parseFromString(await response.text(), 'text/html');
    if (busy()) return;
    const focused = document.activeElement && document.activeElement.getAttribute('href');
    for (const part of ['main', 'footer']) {
      const fresh = page.querySelector(part);
      document.querySelector(part).replaceChildren(...fresh.childNodes);
    }
    if (focused) {
      const again = document.querySelector(`main a[href="${CSS.escape(focused)}"]`);
      if (again) again.focus({preventScroll: true});
    }
  } catch {
    document.getElementById('lost').textContent = ' · the server does not answer; this page is old';
  }
}

if (seconds > 0) setInterval(refresh, seconds * 1000);

const here = document.getElementById('zone-here');
if (here) {
  here.hidden = false;
  here.addEventListener('click', () => {
    document.getElementById('zone').value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  });
}
